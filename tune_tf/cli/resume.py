"""``sweep.py resume``: go on with a sweep that was interrupted or killed."""

from pathlib import Path
from typing import Annotated

import typer


def resume(
    sweep: Annotated[str, typer.Argument(help="The sweep's folder, id, or name for its latest.")],
    storage_path: Annotated[
        Path, typer.Option(help="Where sweeps are looked for by id or name.")
    ] = Path("sweeps"),
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON and nothing else.")
    ] = False,
) -> None:
    """Go on with a sweep that was interrupted or killed.

    Trials that have ended are not run again; running ones go on from their last checkpoint.

    Example: `sweep.py resume digits-cnn`
    """
    from tune_tf.cli.report import print_result
    from tune_tf.cli.session import session
    from tune_tf.folder import SweepFolder
    from tune_tf.sweep import resume_sweep

    folder = SweepFolder.open(sweep, storage_path)
    with session(folder.config, quiet=as_json) as callbacks:
        result = resume_sweep(folder.path, callbacks=callbacks)
    raise typer.Exit(print_result(result, as_json=as_json))
