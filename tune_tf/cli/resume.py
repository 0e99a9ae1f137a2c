"""``sweep.py resume``: go on with a sweep that was interrupted or killed."""

import typer

from tune_tf.cli.options import STORAGE_PATH, JsonOption, StoragePathOption, SweepArgument


def resume(
    sweep: SweepArgument,
    storage_path: StoragePathOption = STORAGE_PATH,
    as_json: JsonOption = False,
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
