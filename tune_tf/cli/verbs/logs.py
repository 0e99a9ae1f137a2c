"""``sweep.py logs``: print a trial's log."""

import sys
import time
from typing import Annotated

import typer

from tune_tf.cli.options import (
    STORAGE_PATH,
    JsonOption,
    StoragePathOption,
    SweepArgument,
    TrialArgument,
)


def logs(
    sweep: SweepArgument,
    trial: TrialArgument,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep printing until the trial has ended.")
    ] = False,
    tail: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Start with the last N lines.")
    ] = None,
    storage_path: StoragePathOption = STORAGE_PATH,
    as_json: JsonOption = False,
) -> None:
    """Print what a trial's processes wrote to stdout and stderr.

    TensorFlow's output is included; for the traceback of a failed trial, use `show`. With
    `--json`, the whole log is printed at once.

    Example: `sweep.py logs digits-cnn 3 --follow --tail 20`
    """
    from tune_tf.cli.terminal.console import print_json
    from tune_tf.events import TRIAL_LOG, EventHistory, has_driver
    from tune_tf.inspection import SweepView, log_text
    from tune_tf.sweep_folder import SweepFolder

    folder = SweepFolder.open(sweep, storage_path)
    found = SweepView.of(folder).trial(trial)
    path = found.folder / TRIAL_LOG

    def is_over() -> bool:
        if not follow:
            return True
        page = EventHistory.read(folder.path).trials.get(found.trial_id)
        return not has_driver(folder.path) or (page is not None and page.outcome is not None)

    chunks = log_text(path, last_lines=tail, is_over=is_over, wait=time.sleep)
    if as_json:
        text = b"".join(chunks).decode(errors="replace")
        print_json({"trial_id": found.trial_id, "path": str(path), "text": text})
        return
    for chunk in chunks:
        sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()
    if found.log is None:
        sys.stderr.write(f"trial {found.number} has no log: {path} does not exist\n")
