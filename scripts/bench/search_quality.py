"""Epochs until a sweep finds one of the best 0.1% of all configs, in virtual time.

Contestants are our scheduler and sampler ``freeze_thaw``, and pairings of a searcher and
asynchronous halving (one in three goes on, 1 to 27 epochs), 2,700 epochs each, with 1, 4, 16 and 64
workers; random configs in full; and one epoch for
each of many random configs, then the best in full. A config is found when a trial has run to its
27th epoch with a value among the best 0.1 %: what a user gets, not what was proposed or looked good
on the way. Who does not find it is counted with the whole budget.
"""

import argparse
import itertools
import logging
import multiprocessing
import os
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import optuna
from measuring.comparison import Epochs, compare, is_worse, p_value
from measuring.summary import Target, print_summary, print_table
from optuna.samplers import BaseSampler, RandomSampler
from ray.tune.schedulers import ASHAScheduler, TrialScheduler
from ray.tune.search import Searcher
from ray.tune.search.optuna import OptunaSearch
from virtual.problems import MAX_T, PROBLEMS, Problem, read_problem
from virtual.sweep import run_virtually

from tune_tf.schedulers import scheduler
from tune_tf.searchers import OptunaSearcher
from tune_tf.space.optuna_form import OptunaSpace

_Parts = tuple[Searcher, TrialScheduler]
_AGAINST = ("ray", "random", "random_in_full", "one_epoch")
"""Whom ours is compared with."""
_RATIO, _RATIO_HELD_OUT = 0.6, 0.7
"""Ratio to the better of Ray's pairing and our ``tpe`` to reach."""
_NUM_SEEDS = 20


class _Task(NamedTuple):
    """Simulated sweep, as passed to a worker process."""

    problem: str
    num_workers: int
    contestant: str
    seed: int
    budget_epochs: int


class _Outcome(NamedTuple):
    """Outcome of a simulated sweep.

    Args:
        task: The task.
        epochs: Epochs to a config among the best 0.1 %; None if none was found.
        real_s: Real seconds it took.
    """

    task: _Task
    epochs: int | None
    real_s: float


def _rays_parts(problem: Problem, **settings: Any) -> _Parts:
    """Return Ray's own ``OptunaSearch`` and ``ASHAScheduler`` for a problem."""
    objective = {"metric": problem.objective.metric, "mode": problem.objective.mode}
    space = problem.space
    # With conditions, it is a function, as Ray's users write it.
    ray_space = OptunaSpace(space) if space.conditional else space.distributions()
    return (
        OptunaSearch(ray_space, **objective, **settings),
        ASHAScheduler(max_t=problem.max_t, grace_period=1, reduction_factor=3, **objective),
    )


def _our_parts(problem: Problem, sampler: str | BaseSampler, seed: int | None = None) -> _Parts:
    """Return our searcher with a sampler, and the scheduler that goes with it."""
    space, objective = problem.space, problem.objective
    settings = {"name": "asha"}
    if sampler == "freeze_thaw":
        settings = {"name": "freeze_thaw", "seed": seed}
    return (
        OptunaSearcher(space, objective, sampler, seed=seed),
        scheduler(**settings, objective=objective, space=space, epochs=problem.max_t),
    )


def _random_in_full(problem: Problem, task: _Task) -> int | None:
    """Return the epochs to the target if random configs run in full, ``num_workers`` at once."""
    rng = np.random.default_rng(task.seed)
    wave = problem.max_t * task.num_workers
    for epochs in range(wave, task.budget_epochs + 1, wave):
        values = [_final(problem, rng) for _ in range(task.num_workers)]
        if any(map(problem.is_solved_by, values)):
            return epochs
    return None


def _final(problem: Problem, rng: np.random.Generator) -> float:
    return problem.value(problem.space.sample(rng), problem.max_t)


def _one_epoch(problem: Problem, task: _Task) -> int | None:
    """Return the epochs to the target if random configs run one epoch, and the best go on in full.

    In rounds of twice the size, so that half of any budget goes into first epochs.
    """
    rng = np.random.default_rng(task.seed)
    sign = 1 if problem.objective.mode == "min" else -1
    waiting: list[tuple[float, float]] = []  # values after the first and the last epoch
    epochs, num_new = 0, problem.max_t
    while True:
        for _ in range(num_new):
            config = problem.space.sample(rng)
            waiting.append((sign * problem.value(config, 1), problem.value(config, problem.max_t)))
        epochs += num_new
        waiting.sort()
        num_full = -(-num_new // problem.max_t)
        while num_full > 0:
            wave, waiting = waiting[: task.num_workers], waiting[task.num_workers :]
            epochs += (problem.max_t - 1) * len(wave)
            num_full -= len(wave)
            if epochs > task.budget_epochs:
                return None
            if any(problem.is_solved_by(final) for _, final in wave):
                return epochs
        num_new *= 2


_WITHOUT_SEARCHER = {"random_in_full": _random_in_full, "one_epoch": _one_epoch}


def quiet() -> None:
    """Silence what Ray and Optuna print."""
    warnings.simplefilter("ignore")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    logging.getLogger("ray.tune").setLevel(logging.ERROR)


def _run(task: _Task) -> _Outcome:
    problem = read_problem(task.problem)
    started = time.perf_counter()
    if task.contestant in _WITHOUT_SEARCHER:
        epochs = _WITHOUT_SEARCHER[task.contestant](problem, task)
        return _Outcome(task, epochs, time.perf_counter() - started)
    parts = (
        _rays_parts(problem, seed=task.seed)
        if task.contestant == "ray"
        else _our_parts(problem, task.contestant, task.seed)
    )
    trace = run_virtually(
        problem,
        *parts,
        num_workers=task.num_workers,
        budget_epochs=task.budget_epochs,
        until_solved=True,
        seed=task.seed,
    )
    return _Outcome(task, trace.epochs_to_target(), time.perf_counter() - started)


def _run_all(tasks: Sequence[_Task], num_processes: int) -> Iterator[_Outcome]:
    context = multiprocessing.get_context("spawn")
    with context.Pool(num_processes, initializer=quiet) as pool:
        yield from pool.imap_unordered(_run, tasks, chunksize=4)


def _assert_same_decisions(problem: Problem, num_workers: int, budget_epochs: int) -> None:
    """Check that our scheduler and Ray's make the same decisions for the same random configs."""
    # A sampler of the user's own is let repeat itself, as Ray's is.
    pairs = _our_parts(problem, RandomSampler(0)), _rays_parts(problem, sampler=RandomSampler(0))
    ours, theirs = (
        run_virtually(problem, *parts, num_workers=num_workers, budget_epochs=budget_epochs)
        for parts in pairs
    )
    same = ours.decisions() == theirs.decisions()
    assert same, f"{problem.name}: {num_workers} workers, other decisions than Ray's"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smoke run: three problems, 3 seeds")
    parser.add_argument("--seeds", type=int, default=_NUM_SEEDS, help="seeds of a cell")
    parser.add_argument(
        "--workers", type=int, nargs="+", default=[1, 4, 16, 64], help="trials at once"
    )
    parser.add_argument(
        "--problems", nargs="+", choices=PROBLEMS, default=list(PROBLEMS), help="which"
    )
    parser.add_argument(
        "--ours", nargs="+", default=["freeze_thaw", "tpe"], help="the first is judged"
    )
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="sweeps at once")
    arguments = parser.parse_args()
    arguments.budget_epochs = 100 * MAX_T
    if arguments.quick:
        arguments.seeds, arguments.workers, arguments.budget_epochs = 3, [4], 300
        arguments.problems = ["branin", "conditional", "unbalanced_rows"]
    return arguments


class _Results:
    """Epochs by contestant, problem and number of workers.

    Args:
        outcomes: All outcomes.
    """

    def __init__(self, outcomes: Sequence[_Outcome]) -> None:
        by_cell: dict[tuple[str, str, int], list[_Outcome]] = defaultdict(list)
        for outcome in sorted(outcomes, key=lambda each: each.task):
            task = outcome.task
            by_cell[task.contestant, task.problem, task.num_workers].append(outcome)
        self._by_cell = dict(by_cell)

    def epochs(self, contestant: str, problem: str, num_workers: int) -> Epochs:
        """Return the epochs by seed, or the budget if nothing was found."""
        cell = self._by_cell[contestant, problem, num_workers]
        return np.array([each.epochs or each.task.budget_epochs for each in cell], dtype=float)

    def best(self, contestants: Sequence[str], problem: str, num_workers: int) -> Epochs:
        """Return the epochs of the contestant with the least geometric mean."""
        epochs = [self.epochs(each, problem, num_workers) for each in contestants]
        return min(epochs, key=lambda each: np.log(each).mean())

    def summary(self, contestant: str, problem: str, num_workers: int) -> str:
        """Return the geometric mean of the epochs and the share of successful seeds as text."""
        cell = self._by_cell[contestant, problem, num_workers]
        mean = np.exp(np.log(self.epochs(contestant, problem, num_workers)).mean())
        hits = sum(each.epochs is not None for each in cell) / len(cell)
        return f"{mean:.0f} ({hits:.0%})"


def _print_cells(
    results: _Results, contestants: Sequence[str], problems: Sequence[str], workers: Sequence[int]
) -> dict[str, list[str]]:
    """Print all cells; return those in which the first is significantly worse, by the other."""
    ours = contestants[0]
    worse: dict[str, list[str]] = {other: [] for other in _AGAINST}
    rows = []
    for num_workers, problem in itertools.product(workers, problems):
        row = [str(num_workers), problem]
        row += [results.summary(each, problem, num_workers) for each in contestants]
        first = results.epochs(ours, problem, num_workers)
        beaten_by = []
        for other in _AGAINST:
            if is_worse(first, results.epochs(other, problem, num_workers)):
                worse[other].append(f"{problem}, {num_workers} workers")
                beaten_by.append(other)
        by_ray = results.epochs("ray", problem, num_workers)
        row += [str(compare([(first, by_ray)])), f"{p_value(first, by_ray):.3f}"]
        rows.append([*row, ", ".join(beaten_by)])
    header = ["workers", "problem", *contestants, f"{ours} / ray", "p", "worse than"]
    print_table(header, rows)
    return worse


def main() -> None:
    """Run all cells and print the ratios."""
    arguments = _arguments()
    quiet()
    contestants = [*arguments.ours, *_AGAINST]
    problems = {name: read_problem(name) for name in arguments.problems}
    print("checking that ours and Ray's decide alike on the same configs ...", flush=True)
    for problem, num_workers in itertools.product(problems.values(), arguments.workers):
        _assert_same_decisions(problem, num_workers, arguments.budget_epochs)
    tasks = [
        _Task(name, num_workers, contestant, seed, arguments.budget_epochs)
        for seed in range(arguments.seeds)
        for name in problems
        for num_workers in arguments.workers
        for contestant in contestants
    ]
    outcomes = []
    for number, outcome in enumerate(_run_all(tasks, arguments.processes), 1):
        outcomes.append(outcome)
        if number % 100 == 0:
            print(f"{number} of {len(tasks)} sweeps", flush=True)
    results = _Results(outcomes)
    print("\nEpochs to a config among the best 0.1 % (seeds that found one), ratio, 95 % interval:")
    worse = _print_cells(results, contestants, list(problems), arguments.workers)
    values: dict[str, float | None] = {
        "significantly_worse_cells": sum(map(len, worse.values())),
        **{f"worse_than_{other}": len(cells) for other, cells in worse.items()},
    }
    targets = {
        "significantly_worse_cells": Target(0, "at most"),
        **{f"worse_than_{other}": Target(0, "at most") for other in worse},
    }
    intervals = {}
    rows = []
    sets = {
        "": [name for name, problem in problems.items() if not problem.held_out],
        "held_out/": [name for name, problem in problems.items() if problem.held_out],
    }
    for (prefix, names), num_workers in itertools.product(sets.items(), arguments.workers):
        others = {each: [each] for each in _AGAINST} | {"best": ["ray", *arguments.ours[1:]]}
        for mine, other in itertools.product(arguments.ours if names else (), others):
            found = compare(
                [
                    (
                        results.epochs(mine, each, num_workers),
                        results.best(others[other], each, num_workers),
                    )
                    for each in names
                ]
            )
            key = f"{prefix}{mine}/{other}/w{num_workers}"
            values[key] = found.ratio
            intervals[key] = [round(found.low, 3), round(found.high, 3)]
            if mine == arguments.ours[0] and other == "best":
                targets[key] = Target(_RATIO_HELD_OUT if prefix else _RATIO, "at most")
            rows.append((key, str(found)))
    print()
    print_table(("geometric mean over problems", "ratio"), rows)
    real_s = sum(each.real_s for each in outcomes)
    epochs = sum(each.epochs or each.task.budget_epochs for each in outcomes)
    print(f"\n{real_s:.0f} core seconds, {1000 * real_s / epochs:.2f} ms an epoch")
    print_summary(
        "search_quality",
        values,
        targets,
        intervals=intervals,
        worse=worse,
        num_seeds=arguments.seeds,
    )


if __name__ == "__main__":
    main()
