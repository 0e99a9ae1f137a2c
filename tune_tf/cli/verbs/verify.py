"""``tune-tf verify``: run a reproducible sweep again, and compare."""

import os
from dataclasses import asdict
from functools import partial
from typing import Annotated

import typer

from tune_tf.cli import options
from tune_tf.cli.console import ExitCode, exit_on_interrupt, print_json_or_lines
from tune_tf.sweep_folder import SweepFolder


def verify(
    sweep: options.SweepArgument,
    other: Annotated[
        str | None,
        typer.Option(
            "--with", metavar="SWEEP", help="Compare with this run of it, and run nothing."
        ),
    ] = None,
    storage_path: options.StoragePathOption = options.STORAGE_PATH,
    as_json: options.JsonOption = False,
) -> None:
    """Run a reproducible sweep again, and say where the first difference is.

    The rerun goes without MLflow, into a folder beside: NAME-verify-TIME. Exit code 0: identical;
    1: different; 2: no such sweep, it is running, or it is not reproducible.

    Example: `tune-tf verify digits-cnn`
    """
    folder = SweepFolder.open(sweep, storage_path)
    options.allow_remote_ray(os.environ, folder.config.cluster.address)
    with exit_on_interrupt(f"nothing was compared; the sweep is as before: {folder.path}"):
        from tune_tf.cli.progress import run_with_progress
        from tune_tf.sweep.verify import verify_sweep

        config = folder.config.model_copy(update={"name": f"{folder.config.name}-verify"})
        run = partial(verify_sweep, folder.path, other, storage_path=storage_path)
        found = run_with_progress(run, config, as_json=as_json) if other is None else run()
    head, code = f"identical: {found.compared}", ExitCode.ENDED
    if found.difference:
        head, code = f"first difference {found.difference}", ExitCode.NOTHING_COMPLETED
    elif found.interrupted:
        head, code = f"interrupted, so far {head}", ExitCode.INTERRUPTED
    compared_with = f"compared with {found.other}"
    print_json_or_lines(asdict(found), head, *found.notes, compared_with, as_json=as_json)
    raise typer.Exit(code)
