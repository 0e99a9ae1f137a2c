"""What a reproducible sweep costs, whose results are reported in order, against one without.

Virtual time: the share of the workers' time in which they train, over that of an ordinary sweep,
where configs differ in cost by up to eight times and durations by 10 %. Real time: the same sweep
with and without ``reproducible``, two trials at once, by turns, as epochs a second from the first
start of a trial to the last end.
"""

import argparse
import dataclasses
import logging
import os
import statistics
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import optuna
from measuring.summary import Target, print_summary, print_table
from virtual.problems import Problem, read_problem
from virtual.sweep import run_virtually

from tune_tf import SweepConfig, run_sweep
from tune_tf.record import SweepHistory
from tune_tf.schedulers import scheduler
from tune_tf.schedulers.ordered_sweep import OrderedSweep
from tune_tf.searchers import OptunaSearcher

_SCHEDULERS = ("fifo", "asha", "freeze_thaw")
_SLOTS_PER_WORKER = (1, 2, 4, 8)
_JITTER = 0.1


def _problem() -> Problem:
    """Return a problem whose configs differ in cost by up to eight times."""
    problem = read_problem("mixed_faithful")
    return dataclasses.replace(problem, cost=lambda it: 8 ** ((it["num_layers"] - 1) / 5) / 3)


def _parts(problem: Problem, name: str, seed: int) -> tuple[OptunaSearcher, Any]:
    settings = {"name": name, "seed": seed} if name == "freeze_thaw" else {"name": name}
    sampler = "freeze_thaw" if name == "freeze_thaw" else "tpe"
    space, objective = problem.space, problem.objective
    return (
        OptunaSearcher(space, objective, sampler, seed=seed),
        scheduler(**settings, objective=objective, space=space, epochs=problem.max_t),
    )


def _busy_ordinarily(problem: Problem, name: str, num_workers: int, num_samples: int) -> float:
    """Return the share of the workers' time in which they train, in an ordinary sweep."""
    parts = _parts(problem, name, seed=1)
    trace = run_virtually(problem, *parts, num_workers=num_workers, num_samples=num_samples)
    worked_s = sum(problem.seconds(trace.trials[it.trial].config) for it in trace.events)
    return worked_s / trace.virtual_s / num_workers


def _busy_in_order(
    problem: Problem, name: str, num_workers: int, num_samples: int, num_slots: int
) -> float:
    """Return the share of the workers' time in which they train, in a reproducible sweep."""
    searcher, rules = _parts(problem, name, seed=1)
    ordered = OrderedSweep(searcher, rules, num_slots=num_slots, num_samples=num_samples, seed=1)
    rng, worked_s, now_s = np.random.default_rng(1), 0.0, 0.0
    trained: dict[int, int] = {}
    ends: dict[int, float] = {}
    while not ordered.is_over:
        numbers = range(len(ordered.trials))
        ready = [it for it in numbers if trained.get(it, 0) < ordered.limit(it) and it not in ends]
        for number in sorted(ready, key=ordered.turn)[: num_workers - len(ends)]:
            epochs = ordered.limit(number) - trained.get(number, 0)
            seconds = epochs * problem.seconds(ordered.trials[number].config)
            ends[number] = now_s + seconds * (1 + rng.uniform(-_JITTER, _JITTER))
            worked_s += seconds
        number = min(ends, key=ends.__getitem__)
        now_s, first = ends.pop(number), trained.get(number, 0)
        trained[number] = ordered.limit(number)
        for iteration in range(first + 1, trained[number] + 1):
            value = problem.value(ordered.trials[number].config, iteration)
            ordered.report(number, iteration, {problem.objective.metric: value})
        ordered.advance()
    return worked_s / now_s / num_workers


def _epochs_a_second(folder: str, *, reproducible: bool, width: int, num_samples: int) -> float:
    config = SweepConfig.from_dict(
        {
            "name": "repeated",
            "workload": "tune_tf.workloads.digits:DigitsMLP",
            "objective": {"metric": "val_accuracy", "mode": "max"},
            "reproducible": reproducible,
            "slots": 8,
            "space": {
                "learning_rate": {"loguniform": [1e-4, 1e-1]},
                "width": width,
                "batch_size": 64,
            },
            "seed": 7,
            "epochs": 9,
            "searcher": {"sampler": "random"},
            "scheduler": {"name": "asha"},
            "resources": {"cpus": 1},
            "max_concurrent_trials": 2,
            "budget": {"num_samples": num_samples},
            "mlflow": None,
            "storage_path": folder,
        }
    )
    result = run_sweep(config)
    trials = SweepHistory.read(result.path).trials.values()
    begun_s = min(trial.started_s for trial in trials if trial.started_s)
    ended_s = max(trial.ended_s for trial in trials if trial.ended_s)
    return sum(trial.iterations for trial in result.trials) / (ended_s - begun_s)


def main() -> None:
    """Measure all, and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smoke run: small sweeps, one pair")
    parser.add_argument("--pairs", type=int, default=3, help="real sweeps of each kind")
    arguments = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    logging.getLogger("ray.tune").setLevel(logging.ERROR)
    values: dict[str, float | None] = {}
    rows = []
    num_workers, num_samples = (4, 40) if arguments.quick else (16, 300)
    problem = _problem()
    for name in _SCHEDULERS:
        ordinary = _busy_ordinarily(problem, name, num_workers, num_samples)
        row = [name, f"{ordinary:.2f}"]
        for share in _SLOTS_PER_WORKER:
            busy = _busy_in_order(problem, name, num_workers, num_samples, share * num_workers)
            values[f"virtual/{name}/x{share}"] = busy / ordinary
            row.append(f"{busy / ordinary:.2f}")
        rows.append(row)
    header = ["scheduler", "busy", *(f"x{share} slots" for share in _SLOTS_PER_WORKER)]
    print_table(header, rows)
    pairs, num_samples = (1, 4) if arguments.quick else (arguments.pairs, 32)
    widths = (16,) if arguments.quick else (16, 2048)
    for width in widths:
        ratios = []
        for _ in range(pairs):
            with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
                ordered, without = (
                    _epochs_a_second(folder, reproducible=it, width=width, num_samples=num_samples)
                    for it in (True, False)
                )
            ratios.append(ordered / without)
            print(f"width {width}: {ordered:.2f} and {without:.2f} epochs a second")
        values[f"real/width_{width}"] = statistics.median(ratios)
    targets = {f"virtual/{name}/x4": Target(0.8) for name in _SCHEDULERS}
    print_summary("reproducible", values, targets)


if __name__ == "__main__":
    main()
