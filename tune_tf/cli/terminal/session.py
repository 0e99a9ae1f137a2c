"""The terminal and the signals while a sweep runs."""

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
from tune_tf.secrets import masked


class _EndOnSigterm(Callback):
    """Treats SIGTERM as Ctrl-C, so that a sweep ends cleanly; set once Ray has set its own."""

    def setup(self, *args: Any, **info: Any) -> None:
        def interrupt(_signal: int, _frame: FrameType | None) -> None:
            os.kill(os.getpid(), signal.SIGINT)

        signal.signal(signal.SIGTERM, interrupt)


@contextlib.contextmanager
def session(config: SweepConfig, *, quiet: bool) -> Iterator[list[Callback]]:
    """Show progress and heed signals while a sweep runs.

    Args:
        config: The sweep's settings.
        quiet: Show nothing.

    Yields:
        The callbacks to run the sweep with.
    """
    before = signal.getsignal(signal.SIGTERM)
    logging.getLogger("ray.tune.tune").setLevel(logging.CRITICAL)  # the report tells it better
    console = Console(stderr=True, quiet=quiet)
    heard = Console(stderr=True) if quiet else console  # who wants JSON wants warnings, too
    with Progress(config, console) as progress, warnings_above(heard):
        try:
            yield [progress, _EndOnSigterm()]
        finally:
            signal.signal(signal.SIGTERM, before)


class _Above(logging.Handler):
    """Prints each warning once, above what is drawn live."""

    def __init__(self, console: Console) -> None:
        super().__init__(logging.WARNING)
        self._console = console
        self._told: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        text = f"{record.levelname.lower()}: {record.getMessage()}"
        if text not in self._told:
            self._told.add(text)
            style = "red" if record.levelno >= logging.ERROR else "yellow"
            self._console.print(Text(masked(text), style), soft_wrap=True)


@contextlib.contextmanager
def warnings_above(console: Console) -> Iterator[None]:
    """Print what tune_tf warns of above what is drawn live, each warning once.

    Args:
        console: What draws.
    """
    logger, handler = logging.getLogger("tune_tf"), _Above(console)
    logger.addHandler(handler)
    logger.propagate, propagated = False, logger.propagate
    try:
        yield
    finally:
        logger.propagate = propagated
        logger.removeHandler(handler)
