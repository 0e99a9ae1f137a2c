"""Tags and details of a sweep's MLflow runs."""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.result import HOSTNAME, NODE_IP, TRAINING_ITERATION

from tune_tf.space import SearchSpace
from tune_tf.tracking.names import MAX_TAG_LENGTH, truncate
from tune_tf.tune_internals.trial_state import trial_number

NODE_TAG = "tune_tf.node"
RUNG_TAG = "tune_tf.rung"
FINGERPRINT_TAG = "tune_tf.fingerprint"


@dataclass(frozen=True)
class BestTrial:
    """Best trial so far, by Tune's id, with the value of the objective's metric."""

    trial_id: str
    value: float
    config: Mapping[str, Any] | None = None  # None if no longer known


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

    def start_tags(self, trial: Trial) -> dict[str, str]:
        """Return the tags of a trial that starts."""
        tags = {
            "tune_tf.trial_name": truncate(str(trial), MAX_TAG_LENGTH),
            "tune_tf.trial_number": str(trial_number(trial)),
            "tune_tf.devices": reserved_devices(trial),
        }
        return {name: value for name, value in tags.items() if value}

    def end_tags(self, result: Mapping[str, Any]) -> dict[str, str]:
        """Return the tags of a trial that ended with ``result``."""
        iteration = int(result.get(TRAINING_ITERATION, 0))
        reached = [rung for rung in self.rungs() if rung <= iteration]
        return {RUNG_TAG: str(max(reached))} if reached else {}


def node_name(result: Mapping[str, Any]) -> str:
    """Return the host name and address of the machine that reported a result."""
    names = [str(name) for name in (result.get(HOSTNAME), result.get(NODE_IP)) if name]
    return " ".join(dict.fromkeys(names))


def reserved_devices(trial: Trial) -> str:
    """Return what a trial reserves in all, such as ``2 CPU, 1 GPU``."""
    request = trial.placement_group_factory
    amounts = request.required_resources if request is not None else {}
    return ", ".join(f"{amount:g} {name}" for name, amount in amounts.items() if amount)
