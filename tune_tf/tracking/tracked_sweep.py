"""What a sweep's MLflow runs follow from, besides its record."""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tune_tf.constraint import Constraint
from tune_tf.objective import Objective
from tune_tf.space import SearchSpace


@dataclass(frozen=True)
class SweepDetails:
    """Details of a sweep and its trials for MLflow; unknown ones are omitted."""

    space: SearchSpace | None = None
    rungs: Callable[[], Collection[int]] = tuple  # iterations at which trials are compared
    texts: Mapping[str, str] = field(default_factory=dict)  # more artifacts of the parent, by path
    dataset: Mapping[str, str] | None = None  # fields of MLflow's Dataset

    def artifacts(self) -> dict[str, str]:
        """Return the artifacts of the parent run, as texts by path."""
        if self.space is None:
            return dict(self.texts)
        space = json.dumps(self.space.to_dict(), indent=2, default=str)
        return {"space.json": f"{space}\n", **self.texts}


@dataclass(frozen=True)
class TrackedSweep:
    """What a sweep's MLflow runs follow from, besides its record.

    Args:
        sweep_id: Tag shared by the runs.
        tracking_uri: MLflow's store.
        experiment_name: Of all runs; created if missing.
        name: Of the parent run.
        tags: Of all runs.
        objective: Determines the best trial.
        constraints: Conditions that the best trial must meet.
        details: Details of the sweep and its trials.
        storage: Where the folders of the trials are.
        files: Files that are written at the end of the sweep, by their paths as artifacts.
    """

    sweep_id: str
    tracking_uri: str = field(repr=False)  # may contain a password
    experiment_name: str
    name: str
    tags: Mapping[str, str] = field(default_factory=dict)
    objective: Objective | None = None
    constraints: tuple[Constraint, ...] = ()
    details: SweepDetails = field(default_factory=SweepDetails)
    storage: str = ""
    files: Mapping[str, Path] = field(default_factory=dict)
