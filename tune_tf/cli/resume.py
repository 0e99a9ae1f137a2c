"""``sweep.py resume``: go on with a sweep that was interrupted or killed."""

import os
import sys
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


def resume(
    sweep: SweepArgument,
    allow_changes: Annotated[
        bool,
        typer.Option("--allow-changes", help="Go on with what was edited in its sweep.yaml."),
    ] = False,
    storage_path: StoragePathOption = STORAGE_PATH,
    address: AddressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Go on with a sweep that was interrupted or killed.

    Trials that have ended are not run again; running ones go on from their last checkpoint. A sweep
    that has come to its end is left as it is, and told once more. If the `sweep.yaml` in its folder
    was edited, the changes are shown and refused; `--allow-changes` goes on with those that a sweep
    can go on with, such as `budget.num_samples`.

    Example: `sweep.py resume digits-cnn`
    """
    from tune_tf.folder import SweepFolder

    folder = SweepFolder.open(sweep, storage_path)
    let_ray_out(os.environ, folder.config.cluster.address)
    from tune_tf.cli.printed import print_result
    from tune_tf.cli.session import session
    from tune_tf.sweep import resume_sweep
    from tune_tf.sweep.sweep_result import settled_result

    if (settled := settled_result(folder)) is not None:
        sys.stderr.write(f"{folder.sweep_id} has ended: there is nothing to go on with\n")
        raise typer.Exit(print_result(settled, as_json=as_json))
    config = (folder.edited() if allow_changes else None) or folder.config
    with session(config, quiet=as_json) as callbacks:
        result = resume_sweep(folder.path, allow_changes=allow_changes, callbacks=callbacks)
    raise typer.Exit(print_result(result, as_json=as_json))
