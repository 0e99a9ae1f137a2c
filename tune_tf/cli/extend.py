"""``sweep.py extend``: go on with a sweep with a larger budget."""

import os
from typing import Annotated

import typer

from tune_tf.cli.local_ray import let_ray_out
from tune_tf.cli.options import (
    STORAGE_PATH,
    AddressOption,
    JsonOption,
    StoragePathOption,
    SweepArgument,
)

_LIMIT = "A number, `+` and a number for so much more, or `none`."


def extend(
    sweep: SweepArgument,
    num_samples: Annotated[
        str | None, typer.Option(help="Trials: a number, or `+20` for so many more.")
    ] = None,
    time_budget_s: Annotated[str | None, typer.Option(help=f"Seconds. {_LIMIT}")] = None,
    epochs: Annotated[str | None, typer.Option(help=f"Of all trials. {_LIMIT}")] = None,
    cpu_hours: Annotated[str | None, typer.Option(help=f"Reserved CPUs. {_LIMIT}")] = None,
    gpu_hours: Annotated[str | None, typer.Option(help=f"Reserved GPUs. {_LIMIT}")] = None,
    target: Annotated[
        str | None, typer.Option(help="Value that is good enough, or `none`.")
    ] = None,
    patience: Annotated[str | None, typer.Option(help=f"Trials without gain. {_LIMIT}")] = None,
    storage_path: StoragePathOption = STORAGE_PATH,
    address: AddressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Go on with a sweep that has ended or was interrupted, with a larger budget.

    Trials that have ended are not run again; the searcher goes on with what it has learned from
    them. Exit codes are those of `run`; 2 also if the sweep is running or nothing would change.

    Example: `sweep.py extend digits-cnn --num-samples +20`
    """
    from tune_tf.folder import SweepFolder
    from tune_tf.sweep.extended_budget import extended_budget

    given = {
        "num_samples": num_samples,
        "time_budget_s": time_budget_s,
        "epochs": epochs,
        "cpu_hours": cpu_hours,
        "gpu_hours": gpu_hours,
        "target": target,
        "patience": patience,
    }
    budget = {name: value for name, value in given.items() if value is not None}
    folder = SweepFolder.open(sweep, storage_path)
    let_ray_out(os.environ, folder.config.cluster.address)
    from tune_tf.cli.printed import print_result
    from tune_tf.cli.session import session
    from tune_tf.sweep import extend_sweep

    larger = extended_budget(folder.config.budget, budget)
    config = folder.config.model_copy(update={"budget": larger})
    with session(config, quiet=as_json) as callbacks:
        result = extend_sweep(folder.path, budget, callbacks=callbacks)
    raise typer.Exit(print_result(result, as_json=as_json))
