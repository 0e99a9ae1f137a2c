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

from tune_tf.cli.progress import Progress
from tune_tf.config import SweepConfig


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
    with Progress(config, Console(stderr=True, quiet=quiet)) as progress:
        try:
            yield [progress, _EndOnSigterm()]
        finally:
            signal.signal(signal.SIGTERM, before)
