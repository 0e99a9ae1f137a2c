"""Finished sweeps as a report finds them: a result, and the record."""

from dataclasses import dataclass, field

import numpy as np

from tune_tf.config import SweepConfig
from tune_tf.outcome import Outcome
from tune_tf.record import Record
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
    now, trials, ends = [START_S], [], [START_S]
    with Record(path, clock=lambda: now[0]) as record:
        record.begin_session()
        for number, it in enumerate(told):
            values = it.config or config.space.sample(np.random.default_rng(number))
            trial_id, start_s = f"id{number}", START_S + it.started_after_s
            now[0] = start_s
            name, tag = f"trial_{number:05d}", str(number + 1)
            record.record_creation(trial_id, number, values, name=name, tag=tag)
            if it.curve:
                record.record_start(trial_id, values, devices="1 CPU")
            for epoch, value in enumerate(it.curve, start=1):
                now[0] = start_s + epoch * EPOCH_S
                line = {
                    metric: value,
                    "training_iteration": epoch,
                    "timestamp": int(now[0]),
                    "time_total_s": epoch * EPOCH_S,
                }
                record.record_result(number, line)
            if it.curve and it.outcome:
                record.record_end(trial_id, it.outcome)
            ends.append(now[0])
            metrics = ({metric: it.curve[-1]} if it.curve else {}) | it.metrics
            trials.append(
                TrialResult(
                    trial_id,
                    number,
                    values,
                    it.outcome,
                    it.cause,
                    len(it.curve),
                    metrics,
                    feasible=it.feasible,
                )
            )
        now[0] = max(ends)
        record.record_session_end(interrupted=False, run_ids={})
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
