"""Tags and Markdown descriptions of a sweep's MLflow runs."""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.result import HOSTNAME, NODE_IP, TRAINING_ITERATION

from tune_tf.objective import Objective
from tune_tf.outcome import Outcome
from tune_tf.space import SearchSpace
from tune_tf.tracking.names import MAX_TAG_LENGTH, truncate
from tune_tf.tune_internals.trial_state import trial_number

NODE_TAG = "tune_tf.node"
RUNG_TAG = "tune_tf.rung"
FINGERPRINT_TAG = "tune_tf.fingerprint"

_STATUS_TEXTS = {
    "RUNNING": "running",
    "FINISHED": "finished",
    "KILLED": "interrupted",
    "FAILED": "failed: no trial completed",
}


@dataclass(frozen=True)
class BestTrial:
    """Best trial so far, by Tune's id and name, with the value of the objective's metric."""

    trial_id: str
    name: str
    value: float
    config: Mapping[str, Any] | None = None  # None if no longer known


@dataclass(frozen=True)
class SweepDetails:
    """Details of a sweep and its trials for MLflow; unknown ones are omitted."""

    space: SearchSpace | None = None
    resume_with: str | None = None  # command
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


def sweep_description(
    status: str,
    outcomes: Mapping[Outcome, int],
    num_results: int,
    details: SweepDetails,
    *,
    objective: Objective | None = None,
    best: BestTrial | None = None,
) -> str:
    """Return the description of a parent run with MLflow's ``status``.

    ``outcomes`` are those of the ended trials, counted.
    """
    parts = [f"**Hyperparameter sweep with Ray Tune, {_STATUS_TEXTS[status]}.** "]
    parts[0] += _counts(outcomes, num_results)
    if status == "KILLED" and details.resume_with:
        parts.append(f"Resume with `{details.resume_with}`.")
    if best is not None and objective is not None:
        label = "Best" if status in ("FINISHED", "FAILED") else "Best so far"
        parts.append(f"{label} `{objective.metric}`: **{best.value:.6g}** in `{best.name}`")
    return "\n\n".join(parts)


def _counts(counts: Mapping[Outcome, int], num_results: int) -> str:
    number = sum(counts.values())
    if not number:
        return "Each child run is one trial."
    each = ", ".join(
        f"{counts[outcome]} {outcome.value.replace('_', ' ')}"
        for outcome in Outcome
        if counts.get(outcome)
    )
    return f"{number} trial{'' if number == 1 else 's'} ({each}), {num_results} results."
