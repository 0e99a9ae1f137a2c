"""Whether one of the best three of 100 random configs runs to its end, and how true chances are.

Tables of real training, 27 epochs, 4 workers. For each scheduler: the share of seeds in which one
of the three configs with the best last values runs to its end, and the epochs of all trials. For
``freeze_thaw`` with its own sampler: of the paused trials with a predicted chance to beat the best
full run so far, the share that would have beaten it.
"""

import argparse
import multiprocessing
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")

import itertools

import numpy as np
from measuring.summary import Target, print_summary, print_table
from ray.tune.experiment import Trial
from search_quality import ALL_PROBLEMS, TABLES, quiet, read_problem

from tune_tf.schedulers import FreezeThawScheduler
from tune_tf.simulation import make_pairing, simulate

_SCHEDULERS: dict[str, tuple[str, dict[str, Any]]] = {
    "freeze_thaw": ("freeze_thaw", {}),
    "asha": ("asha", {}),
    "hyperband": ("HyperBandScheduler", {}),
}
_NUM_SAMPLES, _NUM_WORKERS, _NUM_BEST = 100, 4, 3
_EDGES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)


class _Survival(NamedTuple):
    """Whether one of the best three ran to its end, and the epochs of all trials."""

    survived: bool
    epochs: int


def _survival(task: tuple[str, str, int]) -> _Survival:
    name, label, seed = task
    problem = read_problem(name)
    scheduler, settings = _SCHEDULERS[label]
    pairing = make_pairing(problem, "random", scheduler, seed=seed, **settings)
    trace = simulate(
        problem,
        pairing.searcher,
        pairing.scheduler,
        num_workers=_NUM_WORKERS,
        num_samples=_NUM_SAMPLES,
        seed=seed,
    )
    ends = [problem.value(trial.config, problem.max_t) for trial in trace.trials]
    sign = 1 if problem.objective.mode == "min" else -1
    best = set(np.argsort(sign * np.array(ends))[:_NUM_BEST].tolist())
    return _Survival(any(run.trial in best for run in trace.full_runs()), trace.epochs)


def _chances(task: tuple[str, int, int]) -> list[tuple[float, bool]]:
    """Return the predicted chances of paused trials, once a rung, and whether they were right."""
    name, seed, budget_epochs = task
    problem = read_problem(name)
    pairing = make_pairing(problem, "freeze_thaw", "freeze_thaw", seed=seed)
    scheduler = pairing.scheduler
    assert isinstance(scheduler, FreezeThawScheduler)
    seen: dict[tuple[str, int], tuple[float, bool]] = {}
    decide = scheduler.choose_trial_to_run

    def choose_trial_to_run(controller: Any) -> Any:
        best = scheduler.best_value
        for trial_id, chance in scheduler.chances.items() if best is not None else ():
            trial = controller.get_trials()[int(trial_id)]
            if trial.status != Trial.PAUSED:
                continue
            key = trial_id, trial.last_result.get("training_iteration", 0)
            if key not in seen:
                end = problem.value(trial.config, problem.max_t)
                seen[key] = chance, problem.objective.better(end, best)
        return decide(controller)

    scheduler.choose_trial_to_run = choose_trial_to_run
    simulate(
        problem,
        pairing.searcher,
        scheduler,
        num_workers=_NUM_WORKERS,
        budget_epochs=budget_epochs,
        seed=seed,
    )
    return list(seen.values())


def _print_calibration(pairs: Sequence[tuple[float, bool]]) -> float:
    """Print predicted and observed shares; return their mean distance, weighted by trials."""
    chances, right = np.array([pair[0] for pair in pairs]), np.array([pair[1] for pair in pairs])
    rows, distance = [], 0.0
    for low, high in itertools.pairwise(_EDGES):
        here = (chances >= low) & ((chances < high) | (high == 1.0))
        if here.any():
            predicted, observed = chances[here].mean(), right[here].mean()
            distance += abs(predicted - observed) * here.mean()
            rows.append(
                (f"{low:.2f} - {high:.2f}", str(here.sum()), f"{predicted:.2f}", f"{observed:.2f}")
            )
    print_table(("chance", "paused trials", "predicted", "observed"), rows)
    return float(distance)


def main() -> None:
    """Run all sweeps and print the shares."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smoke run: one table, 2 seeds")
    parser.add_argument("--seeds", type=int, default=20, help="seeds of a cell")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="sweeps at once")
    arguments = parser.parse_args()
    tables, problems, num_seeds, budget_epochs = TABLES, ALL_PROBLEMS, arguments.seeds, 1000
    if arguments.quick:
        tables, problems, num_seeds, budget_epochs = TABLES[:1], ("branin",), 2, 200
    values: dict[str, float | None] = {}
    rows = []
    with multiprocessing.get_context("spawn").Pool(arguments.processes, quiet) as pool:
        for table in tables:
            for label in _SCHEDULERS:
                tasks = [(table, label, seed) for seed in range(num_seeds)]
                found = pool.map(_survival, tasks)
                share = float(np.mean([each.survived for each in found]))
                values[f"{table}/{label}"] = share
                epochs = float(np.mean([each.epochs for each in found]))
                rows.append((table, label, f"{share:.0%}", f"{epochs:.0f}"))
        print_table(("table", "scheduler", "one of the best three ends", "epochs"), rows)
        print()
        chances = [(name, seed, budget_epochs) for name in problems for seed in range(num_seeds)]
        pairs = [pair for found in pool.map(_chances, chances) for pair in found]
    values["calibration_error"] = _print_calibration(pairs)
    targets = {f"{table}/freeze_thaw": Target(0.9) for table in tables}
    print_summary("search_survival", values, targets, num_seeds=num_seeds)


if __name__ == "__main__":
    main()
