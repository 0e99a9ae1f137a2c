"""Progress, warnings and signals while a sweep runs."""

import contextlib
import logging
import os
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Any

from ray.tune import Callback
from rich.console import Console
from rich.text import Text

from tune_tf.cli.terminal.progress import Progress
from tune_tf.config import SweepConfig
from tune_tf.secrets import mask_secrets


class _EndOnSigterm(Callback):
    """Treats SIGTERM as Ctrl-C; installed after Ray has installed its own handler."""

    def setup(self, *args: Any, **info: Any) -> None:
        def interrupt(_signal: int, _frame: FrameType | None) -> None:
            os.kill(os.getpid(), signal.SIGINT)

        signal.signal(signal.SIGTERM, interrupt)


@contextlib.contextmanager
def session(config: SweepConfig, *, quiet: bool) -> Iterator[list[Callback]]:
    """Show progress and handle signals while a sweep runs.

    Args:
        config: The sweep's settings.
        quiet: Whether to hide the progress; warnings are printed anyway.

    Yields:
        Ray Tune callbacks for the sweep.
    """
    before = signal.getsignal(signal.SIGTERM)
    logging.getLogger("ray.tune.tune").setLevel(logging.CRITICAL)  # the report has it
    console = Console(stderr=True, quiet=quiet)
    warnings = Console(stderr=True) if quiet else console  # with --json too
    with Progress(config, console) as progress, warnings_above_progress(warnings):
        try:
            yield [progress, _EndOnSigterm()]
        finally:
            signal.signal(signal.SIGTERM, before)


class _WarningPrinter(logging.Handler):
    """Prints each warning once, above the live display."""

    def __init__(self, console: Console) -> None:
        super().__init__(logging.WARNING)
        self._console = console
        self._printed: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        text = f"{record.levelname.lower()}: {record.getMessage()}"
        if text not in self._printed:
            self._printed.add(text)
            style = "red" if record.levelno >= logging.ERROR else "yellow"
            self._console.print(Text(mask_secrets(text), style), soft_wrap=True)


@contextlib.contextmanager
def warnings_above_progress(console: Console) -> Iterator[None]:
    """Print each warning of tune_tf once, above the live display of a console."""
    logger, handler = logging.getLogger("tune_tf"), _WarningPrinter(console)
    logger.addHandler(handler)
    logger.propagate, propagated = False, logger.propagate
    try:
        yield
    finally:
        logger.propagate = propagated
        logger.removeHandler(handler)
