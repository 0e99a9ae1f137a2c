"""Finished sweeps as a report finds them: a result, and the trials' folders."""

import json
from dataclasses import dataclass, field

import numpy as np

from tune_tf.config import SweepConfig
from tune_tf.events import EVENT_LOG
from tune_tf.outcome import Outcome
from tune_tf.results import SweepResult, TrialResult

START_S = 1_790_000_000
SPACE = {
    "optimizer": {"choice": ["adamw", "sgd"]},
    "momentum": {"uniform": [0.0, 0.95], "when": {"optimizer": "sgd"}},
    "learning_rate": {"loguniform": [1e-4, 1e-1]},
    "layers": {"choice": [[64], [64, 32], None]},
    "norm": {"choice": [True, False]},
    "width": {"int": [8, 128]},
    "batch_size": 32,
}
SETTINGS = {
    "name": "small",
    "workload": "models:Mine",
    "objective": {"metric": "val_accuracy", "mode": "max"},
    "space": SPACE,
    "scheduler": {"name": "asha", "max_t": 9, "grace_period": 1, "reduction_factor": 3},
    "budget": {"num_samples": 4},
}


@dataclass
class Told:
    """What is said of one trial: its curve, one value an iteration, and how it ended."""

    curve: list
    outcome: Outcome | None = Outcome.COMPLETED
    config: dict = field(default_factory=dict)
    metrics: dict = field(default_factory=dict)
    started_after_s: float = 0.0
    pid: int = 1
    host: str = "node-1"
    iteration_s: float = 2.0
    feasible: bool = True
    cause: str | None = None
    results: dict = field(default_factory=dict)  # further ones of each iteration


def sweep_on_disk(folder, told, **settings):
    """Write the trials' folders of a sweep and return its result."""
    config = SweepConfig.from_dict(SETTINGS | settings)
    metric = config.leading_objective.metric
    path = folder / f"{config.name}-20260921-101320"
    path.mkdir()
    (path / "sweep.yaml").write_text(config.to_yaml())
    trials, events = [], []
    for number, it in enumerate(told):
        values = it.config or config.space.sample(np.random.default_rng(number))
        lines = [
            {
                metric: value,
                "training_iteration": done,
                "timestamp": int(START_S + it.started_after_s + done * it.iteration_s),
                "time_total_s": done * it.iteration_s,
                "time_this_iter_s": it.iteration_s,
                "time_since_restore": done * it.iteration_s,
                "pid": it.pid,
                "hostname": it.host,
                "config": values,
                **it.results,
            }
            for done, value in enumerate(it.curve, start=1)
        ]
        (path / f"trial_{number:05d}").mkdir()
        (path / f"trial_{number:05d}" / "result.json").write_text(
            "".join(json.dumps(line) + "\n" for line in lines)
        )
        if it.curve:
            start_s = START_S + it.started_after_s
            event = {"trial_id": f"id{number}", "number": number, "config": values, "cause": None}
            events.append({"event": "started", "at": start_s, **event})
            if it.outcome:
                end_s = start_s + len(it.curve) * it.iteration_s
                ended = {"event": "ended", "at": end_s, "outcome": it.outcome.value}
                events.append({**event, **ended})
        last = {metric: it.curve[-1]} if it.curve else {}
        trials.append(
            TrialResult(
                trial_id=f"id{number}",
                number=number,
                config=values,
                outcome=it.outcome,
                cause=it.cause,
                iterations=len(it.curve),
                metrics=last | it.metrics,
                feasible=it.feasible,
            )
        )
    (path / EVENT_LOG).write_text("".join(json.dumps(event) + "\n" for event in events))
    return SweepResult(path.name, path, config, folder, tuple(trials))


def many_trials(count, max_t=27, seed=0):
    """Told trials of a sweep with stopping and every kind of end, on eight slots."""
    rng = np.random.default_rng(seed)
    free = np.zeros(8)
    told = []
    for _ in range(count):
        limit = rng.choice([1, 3, 9, max_t], p=[0.5, 0.25, 0.15, 0.1])
        top, pace = rng.uniform(0.4, 0.98), rng.uniform(1, 8)
        curve = top * (1 - np.exp(-np.arange(1, limit + 1) / pace)) + rng.normal(0, 0.01, limit)
        outcome = Outcome.COMPLETED if limit == max_t else Outcome.PRUNED
        cause = None
        if rng.random() < 0.03:
            outcome = rng.choice([Outcome.ERROR, Outcome.DIVERGED, Outcome.OOM])
            cause = f"ValueError: it {outcome.value}"
        slot = int(free.argmin())
        told.append(
            Told(
                [float(value) for value in curve],
                outcome,
                started_after_s=float(free[slot]),
                pid=100 + slot,
                host=f"node-{slot // 4 + 1}",
                cause=cause,
            )
        )
        free[slot] += limit * 2.0 + rng.uniform(0, 2)
    return told
