"""``sweep.py simulate``: try a searcher and a scheduler in virtual time."""

import json
import sys
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tune_tf.cli.options import JsonOption

if TYPE_CHECKING:
    from tune_tf.simulation import MultiSeedRuns, Pairing, Problem


def simulate(
    sampler: Annotated[str, typer.Option(help="The searcher's sampler.")] = "tpe",
    scheduler: Annotated[str, typer.Option(help="The scheduler.")] = "asha",
    problem: Annotated[
        str, typer.Option(help="A built-in problem, or a table of learning curves (.npz).")
    ] = "hartmann6",
    num_workers: Annotated[int, typer.Option(min=1, help="Trials that run at a time.")] = 4,
    seeds: Annotated[int, typer.Option(min=1, help="Sweeps, with a seed each.")] = 5,
    max_t: Annotated[int, typer.Option(min=1, help="Epochs of a trial that runs to its end.")] = 27,
    grace_period: Annotated[
        int | None, typer.Option(min=1, help="Epochs before a trial may be stopped.")
    ] = None,
    reduction_factor: Annotated[
        float | None, typer.Option(help="One trial in this many goes on.")
    ] = None,
    budget_epochs: Annotated[
        int | None, typer.Option(min=1, help="Epochs of all trials; 100 times max_t if not given.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Try a sampler and a scheduler in virtual time: nothing is trained, no cluster is started.

    Tells how many epochs they take to a config among the best 0.1 %, beside random configs under
    the same scheduler.

    Example: `sweep.py simulate --sampler tpe --scheduler asha --problem hartmann6 --num-workers 4`
    """
    import optuna

    from tune_tf.simulation import make_problem, read_curve_table, run_seeds

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    budget_epochs = budget_epochs or 100 * max_t
    given = {"grace_period": grace_period, "reduction_factor": reduction_factor}
    settings = {name: value for name, value in given.items() if value is not None}
    searched = (
        read_curve_table(problem, max_t=max_t)
        if problem.endswith(".npz")
        else make_problem(problem, max_t=max_t)
    )
    surveys = {
        name: run_seeds(
            searched,
            partial(_pairing, searched, name, scheduler, settings),
            num_seeds=seeds,
            num_workers=num_workers,
            budget_epochs=budget_epochs,
        )
        for name in dict.fromkeys((sampler, "random"))
    }
    if as_json:
        told = {name: _as_data(each) for name, each in surveys.items()}
        json.dump({"problem": searched.name, "target": searched.target, **told}, sys.stdout)
        sys.stdout.write("\n")
    else:
        _print_table(searched, scheduler, surveys)


def _pairing(
    problem: "Problem", sampler: str, scheduler: str, settings: Mapping[str, Any], seed: int
) -> "Pairing":
    from tune_tf.simulation import make_pairing

    return make_pairing(problem, sampler, scheduler, seed=seed, **settings)


def _as_data(survey: "MultiSeedRuns") -> dict[str, Any]:
    return {
        "epochs_to_target": survey.epochs_to_target,
        "mean_epochs": survey.mean_epochs,
        "best_values": [trace.best_value for trace in survey.traces],
        "num_trials": [len(trace.trials) for trace in survey.traces],
        "ends": [trace.end.value for trace in survey.traces],
        "virtual_over_real_time": survey.speed,
    }


def _print_table(problem: "Problem", scheduler: str, surveys: "dict[str, MultiSeedRuns]") -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    console.print(f"[bold]{problem.name}[/]: {problem.about}", highlight=False)
    console.print(
        f"The best 0.1 % of all configs have a {problem.objective.metric} of {problem.target:.5g} "
        f"or better after {problem.max_t} epochs.",
        highlight=False,
    )
    table = Table()
    for header in ("", "epochs to one of them", "found by", "median best", "trials", "speed"):
        table.add_column(header)
    for name, survey in surveys.items():
        best = survey.median_best_value
        num_trials = sum(len(trace.trials) for trace in survey.traces) / len(survey.traces)
        table.add_row(
            f"{name} + {scheduler}",
            f"{survey.mean_epochs:.0f}",
            f"{survey.num_found} of {len(survey.traces)}",
            "-" if best is None else f"{best:.5g}",
            f"{num_trials:.0f}",
            f"{survey.speed:,.0f}x",
        )
    console.print(table)
    first, *others = surveys.values()
    for other in others:
        ratio = first.mean_epochs / other.mean_epochs
        console.print(f"{ratio:.2f} times the epochs of random search.", highlight=False)
    for name, survey in surveys.items():
        if survey.num_stalled:
            console.print(
                f"{name}: {survey.num_stalled} sweeps stalled: all trials were paused, and no more "
                "could be proposed. Ray Tune would wait for ever.",
                style="red",
            )
