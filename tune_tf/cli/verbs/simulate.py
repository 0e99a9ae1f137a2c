"""``tune-tf simulate``: simulate a sweep in virtual time."""

import json
import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from tune_tf.cli import options
from tune_tf.cli.console import make_console

if TYPE_CHECKING:
    from tune_tf.simulation import MultiSeedRuns, Pairing, Problem


def simulate_command(
    sampler: Annotated[str, typer.Option(help="The searcher's sampler.")] = "tpe",
    scheduler: Annotated[str, typer.Option(help="The scheduler.")] = "asha",
    problem: Annotated[
        str, typer.Option(help="A built-in problem, or a table of learning curves (.npz).")
    ] = "hartmann6",
    num_workers: Annotated[int, typer.Option(min=1, help="Concurrent trials.")] = 4,
    seeds: Annotated[int, typer.Option(min=1, help="Number of sweeps, one per seed.")] = 5,
    max_t: Annotated[int, typer.Option(min=1, help="Maximum epochs of a trial.")] = 27,
    grace_period: Annotated[
        int | None, typer.Option(min=1, help="Epochs before a trial may be stopped.")
    ] = None,
    reduction_factor: Annotated[
        float | None, typer.Option(help="One trial in this many continues.")
    ] = None,
    budget_epochs: Annotated[
        int | None, typer.Option(min=1, help="Epochs of all trials; default: 100 times max_t.")
    ] = None,
    as_json: options.JsonOption = False,
) -> None:
    """Try a sampler and a scheduler in virtual time: nothing is trained, no cluster is started.

    Reports how many epochs they need to find a config among the best 0.1 %, compared with random
    search under the same scheduler.

    Example: `tune-tf simulate --sampler tpe --scheduler asha --problem hartmann6 --num-workers 4`
    """
    import optuna

    from tune_tf.simulation import make_pairing, make_problem, read_curve_table, run_seeds

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    budget_epochs = budget_epochs or 100 * max_t
    values = {"grace_period": grace_period, "reduction_factor": reduction_factor}
    settings = {name: value for name, value in values.items() if value is not None}
    searched = (
        read_curve_table(problem, max_t=max_t)
        if problem.endswith(".npz")
        else make_problem(problem, max_t=max_t)
    )

    def pairing(name: str, seed: int) -> "Pairing":
        return make_pairing(searched, name, scheduler, seed=seed, **settings)

    runs_by_sampler = {
        name: run_seeds(
            searched,
            partial(pairing, name),
            num_seeds=seeds,
            num_workers=num_workers,
            budget_epochs=budget_epochs,
        )
        for name in dict.fromkeys((sampler, "random"))
    }
    if as_json:
        data = {name: _as_data(each) for name, each in runs_by_sampler.items()}
        json.dump({"problem": searched.name, "target": searched.target, **data}, sys.stdout)
        sys.stdout.write("\n")
    else:
        _print_table(searched, scheduler, runs_by_sampler)


def _as_data(runs: "MultiSeedRuns") -> dict[str, Any]:
    return {
        "epochs_to_target": runs.epochs_to_target,
        "mean_epochs": runs.mean_epochs,
        "best_values": [trace.best_value for trace in runs.traces],
        "num_trials": [len(trace.trials) for trace in runs.traces],
        "ends": [trace.end.value for trace in runs.traces],
        "virtual_over_real_time": runs.speed,
    }


def _print_table(
    problem: "Problem", scheduler: str, runs_by_sampler: "dict[str, MultiSeedRuns]"
) -> None:
    console = make_console()
    console.print(Text.assemble((problem.name, "bold"), f": {problem.about}"))
    console.print(
        f"The best 0.1 % of all configs have a {problem.objective.metric} of {problem.target:.5g} "
        f"or better after {problem.max_t} epochs.",
    )
    table = Table("", "epochs to one of them", "found by", "median best", "trials", "speed")
    for name, runs in runs_by_sampler.items():
        best = runs.median_best_value
        num_trials = sum(len(trace.trials) for trace in runs.traces) / len(runs.traces)
        table.add_row(
            f"{name} + {scheduler}",
            f"{runs.mean_epochs:.0f}",
            f"{runs.num_found} of {len(runs.traces)}",
            "-" if best is None else f"{best:.5g}",
            f"{num_trials:.0f}",
            f"{runs.speed:,.0f}x",
        )
    console.print(table)
    first, *others = runs_by_sampler.values()
    for other in others:
        ratio = first.mean_epochs / other.mean_epochs
        console.print(f"{ratio:.2f} times the epochs of random search.")
    for name, runs in runs_by_sampler.items():
        if runs.num_stalled:
            console.print(
                f"{name}: {runs.num_stalled} sweeps stalled: all trials were paused, and no more "
                "could be proposed. Ray Tune would wait forever.",
                style="red",
            )
