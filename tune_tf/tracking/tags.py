"""Details of a sweep as MLflow tags and artifacts."""

import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.result import HOSTNAME, NODE_IP, TRAINING_ITERATION

from tune_tf.space import SearchSpace
from tune_tf.tracking.names import MAX_TAG_LENGTH, truncate
from tune_tf.tracking.writing.run_update import TRIAL_NAME_TAG

TRIAL_NUMBER_TAG = "tune_tf.trial_number"
OPTUNA_NUMBER_TAG = "tune_tf.optuna_number"
RUNG_TAG = "tune_tf.rung"
NODE_TAG = "tune_tf.node"
DEVICES_TAG = "tune_tf.devices"

_NUMBER = re.compile(r"^(\d+)")


def _none(_trial_id: str) -> None:
    return None


@dataclass(frozen=True)
class SweepDetails:
    """Details of a sweep and its trials for MLflow; unknown ones are omitted.

    Args:
        space: The search space.
        resume_with: Command that resumes the sweep.
        rungs: Returns the iterations at which the scheduler compares trials.
        optuna_number: Returns Optuna's number of a trial, by Tune's id.
        texts: More artifacts of the parent run, as texts by path.
    """

    space: SearchSpace | None = None
    resume_with: str | None = None
    rungs: Callable[[], Collection[int]] = tuple
    optuna_number: Callable[[str], int | None] = _none
    texts: Mapping[str, str] = field(default_factory=dict)

    def artifacts(self) -> dict[str, str]:
        """Return the artifacts of the parent run, as texts by path."""
        if self.space is None:
            return dict(self.texts)
        space = json.dumps(self.space.to_dict(), indent=2, default=str)
        return {"space.json": f"{space}\n", **self.texts}

    def start_tags(self, trial: Trial) -> dict[str, str]:
        """Return the tags of a trial that starts."""
        optuna_number = self.optuna_number(trial.trial_id)
        tags = {
            TRIAL_NAME_TAG: truncate(str(trial), MAX_TAG_LENGTH),
            TRIAL_NUMBER_TAG: str(trial_number(trial)),
            DEVICES_TAG: reserved_devices(trial),
            OPTUNA_NUMBER_TAG: "" if optuna_number is None else str(optuna_number),
        }
        return {name: value for name, value in tags.items() if value}

    def end_tags(self, result: Mapping[str, Any]) -> dict[str, str]:
        """Return the tags of a trial that ended with ``result``."""
        iteration = int(result.get(TRAINING_ITERATION, 0))
        reached = [rung for rung in self.rungs() if rung <= iteration]
        return {RUNG_TAG: str(max(reached))} if reached else {}


def trial_number(trial: Trial) -> int:
    """Return a trial's number in order of suggestion, from 0."""
    match = _NUMBER.match(trial.experiment_tag or "")
    return int(match[1]) - 1 if match else 0


def node_name(result: Mapping[str, Any]) -> str:
    """Return the host name and address of the machine that reported a result."""
    names = [str(name) for name in (result.get(HOSTNAME), result.get(NODE_IP)) if name]
    return " ".join(dict.fromkeys(names))


def reserved_devices(trial: Trial) -> str:
    """Return a trial's reservation: ``2 CPU, 1 GPU``, or ``2 x (1 CPU, 1 GPU)`` for bundles."""
    request = trial.placement_group_factory
    bundles = [_amounts(bundle) for bundle in request.bundles] if request is not None else []
    kinds = {bundle: bundles.count(bundle) for bundle in bundles if bundle}
    if len(bundles) == 1:
        return "".join(kinds)
    return " + ".join(f"{count} x ({bundle})" for bundle, count in kinds.items())


def _amounts(bundle: Mapping[str, float]) -> str:
    return ", ".join(f"{amount:g} {name}" for name, amount in bundle.items() if amount)
