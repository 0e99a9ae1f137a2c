"""Progress, warnings and signals while a sweep runs."""

import contextlib
import errno
import logging
from collections.abc import Callable, Iterator
from typing import Any, Self, TypeVar

import typer
from ray.tune.experiment import Trial
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column
from rich.text import Text

from tune_tf.cli.console import WarningPrinter, make_console
from tune_tf.cli.signals import leave_terminal, repeat_lost_interrupt
from tune_tf.cli.sweep_display import print_result
from tune_tf.config import SweepConfig
from tune_tf.errors import first_line
from tune_tf.formatting import counted
from tune_tf.inspection import SweepView
from tune_tf.results import SweepResult
from tune_tf.sweep.callbacks.progress import ProgressLines, progress_line

_LIVE_EVERY_S = 0.25

_Result = TypeVar("_Result")


class TerminalProgress(ProgressLines):
    """Ray Tune callback that displays the state of a sweep, or prints a line every 10 s."""

    def __init__(self, config: SweepConfig, console: Console) -> None:
        super().__init__(config)
        self._console = console
        if self._console.is_terminal:
            self._every_s = _LIVE_EVERY_S
        text = TextColumn("{task.description}", markup=False, table_column=Column())  # it wraps
        columns = BarColumn(16), text
        self._bar = Progress(*columns, console=self._console, auto_refresh=False, transient=True)
        self._task = self._bar.add_task("", total=config.budget.num_samples)

    def __enter__(self) -> Self:
        """Start drawing."""
        self._console.print(Text(f"{self._config.name}: starting Ray ...", style="dim"))
        if self._console.is_terminal:
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Stop drawing."""
        if self._console.is_terminal:
            self._bar.stop()

    def on_step_end(self, trials: list[Trial], **info: Any) -> None:
        """Draw at most every so many seconds."""
        repeat_lost_interrupt()
        super().on_step_end(trials, **info)

    def _draw(self, view: SweepView) -> None:
        line, num_ended = progress_line(view), view.num_ended
        try:
            if self._console.is_terminal:
                self._bar.update(self._task, completed=num_ended, description=line, refresh=True)
            else:
                self._console.print(Text(line))
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            leave_terminal()  # it was closed


def run_in_terminal(run: Callable[..., SweepResult], config: SweepConfig, *, as_json: bool) -> None:
    """Run a sweep with progress, print its result, and exit with its code.

    ``run`` receives Ray Tune callbacks.
    """
    result = run_with_progress(run, config, as_json=as_json)
    raise typer.Exit(print_result(result, as_json=as_json))


def run_with_progress(
    run: Callable[..., _Result], config: SweepConfig, *, as_json: bool
) -> _Result:
    """Return what ``run`` does, with the progress of its trials, if it receives Tune callbacks."""
    repeat_lost_interrupt()  # while modules were imported
    logging.getLogger("ray.tune.tune").setLevel(logging.CRITICAL)  # the report has it
    console = make_console(stderr=True, quiet=as_json)
    warnings = make_console(stderr=True) if as_json else console  # with --json too
    trials, epochs = config.budget.num_samples, config.epochs
    budget = f"at most {counted(trials, 'trial')} of at most {counted(epochs, 'epoch')}"
    console.print(f"{config.name}: {budget}")
    for handler in logging.getLogger("ray").handlers:
        handler.addFilter(_without_traceback)
    with TerminalProgress(config, console) as progress, _warnings_above_progress(warnings):
        return run(callbacks=[progress])


@contextlib.contextmanager
def _warnings_above_progress(console: Console) -> Iterator[None]:
    logger, handler = logging.getLogger("tune_tf"), WarningPrinter(console)
    logger.addHandler(handler)
    logger.propagate, propagated = False, logger.propagate
    try:
        yield
    finally:
        logger.propagate = propagated
        logger.removeHandler(handler)


def _without_traceback(record: logging.LogRecord) -> bool:
    """Shorten an error that Ray logs and survives to a line; what ends a sweep is raised."""
    error = record.exc_info[1] if record.exc_info else None
    if error is not None:
        record.msg, record.args = f"{record.getMessage()} {first_line(error)}", ()
        record.exc_info = record.exc_text = None
    return True
