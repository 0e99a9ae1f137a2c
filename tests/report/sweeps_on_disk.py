"""Finished sweeps as a report finds them: a result, the event log, and the trials' folders."""

import json
from dataclasses import dataclass, field

import numpy as np

from tune_tf.config import SweepConfig
from tune_tf.events import EVENT_LOG
from tune_tf.outcome import Outcome
from tune_tf.results import SweepResult, TrialResult

START_S = 1_790_000_000
EPOCH_S = 2
SETTINGS = {
    "name": "small",
    "workload": "models:Mine",
    "objective": {"metric": "val_accuracy", "mode": "max"},
    "space": {
        "optimizer": {"choice": ["adamw", "sgd"]},
        "momentum": {"uniform": [0.0, 0.95], "when": {"optimizer": "sgd"}},
        "learning_rate": {"loguniform": [1e-4, 1e-1]},
        "layers": {"choice": [[64], [64, 32], None]},
        "norm": {"choice": [True, False]},
        "width": {"int": [8, 128]},
        "batch_size": 32,
    },
    "epochs": 9,
    "scheduler": {"name": "asha", "grace_period": 1, "reduction_factor": 3},
    "budget": {"num_samples": 4},
}


@dataclass
class Told:
    """What is said of one trial: its curve, one value an epoch, and how it ended."""

    curve: list
    outcome: Outcome | None = Outcome.COMPLETED
    config: dict = field(default_factory=dict)
    metrics: dict = field(default_factory=dict)
    started_after_s: float = 0.0
    feasible: bool = True
    cause: str | None = None


def sweep_on_disk(folder, told, **settings):
    """Write the folder of a sweep and return its result."""
    config = SweepConfig.from_dict(SETTINGS | settings)
    metric = config.leading_objective.metric
    path = folder / f"{config.name}-20260921-101320"
    path.mkdir()
    trials, events = [], [{"event": "begun", "at": START_S, "process": 1, "host": "here"}]
    for number, it in enumerate(told):
        values = it.config or config.space.sample(np.random.default_rng(number))
        start_s, trained_s = START_S + it.started_after_s, len(it.curve) * EPOCH_S
        lines = [
            {
                metric: value,
                "training_iteration": epoch,
                "timestamp": int(start_s + epoch * EPOCH_S),
                "time_total_s": epoch * EPOCH_S,
                "config": values,
            }
            for epoch, value in enumerate(it.curve, start=1)
        ]
        trial = path / f"trial_{number:05d}"
        trial.mkdir()
        (trial / "result.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
        event = {"trial_id": f"id{number}", "number": number, "config": values, "cause": None}
        if it.curve:
            events.append({"event": "started", "at": start_s, **event})
        if it.curve and it.outcome:
            end = {"event": "ended", "at": start_s + trained_s, "outcome": it.outcome.value}
            events.append({**event, **end})
        metrics = ({metric: it.curve[-1]} if it.curve else {}) | it.metrics
        trials.append(
            TrialResult(
                event["trial_id"],
                number,
                values,
                it.outcome,
                it.cause,
                len(it.curve),
                metrics,
                feasible=it.feasible,
            )
        )
    events.sort(key=lambda event: event["at"])
    (path / EVENT_LOG).write_text("".join(json.dumps(event) + "\n" for event in events))
    return SweepResult(path.name, path, config, folder, tuple(trials))


def many_trials(count, max_t=27, seed=0):
    """Told trials of a sweep with stopping and every kind of end."""
    rng = np.random.default_rng(seed)
    told = []
    for number in range(count):
        limit = rng.choice([1, 3, 9, max_t], p=[0.5, 0.25, 0.15, 0.1])
        top, pace = rng.uniform(0.4, 0.98), rng.uniform(1, 8)
        curve = top * (1 - np.exp(-np.arange(1, limit + 1) / pace)) + rng.normal(0, 0.01, limit)
        outcome, cause = Outcome.COMPLETED if limit == max_t else Outcome.PRUNED, None
        if rng.random() < 0.03:
            outcome = rng.choice([Outcome.ERROR, Outcome.DIVERGED, Outcome.OOM])
            cause = f"ValueError: it {outcome.value}"
        told.append(Told(curve.tolist(), outcome, started_after_s=2.0 * number, cause=cause))
    return told
