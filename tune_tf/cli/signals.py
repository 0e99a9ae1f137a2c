"""Signals that end a verb in order, also where its terminal was closed."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

_interrupts = threading.Event()


@contextlib.contextmanager
def interrupt_on_signals() -> Iterator[None]:
    """Treat SIGTERM, and SIGHUP of a closed terminal, as Ctrl-C; under nohup, SIGHUP is ignored."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    for number, handler in before.items():
        if handler in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, _interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _interrupts.clear()


def _interrupt(number: int, frame: FrameType | None) -> None:
    if number == signal.SIGHUP:
        signal.signal(number, signal.SIG_IGN)  # the shell and the system may both send it
        leave_terminal()
    if number != signal.SIGINT and callable(signal.getsignal(signal.SIGINT)):
        signal.raise_signal(signal.SIGINT)
        return
    _interrupts.set()
    raise KeyboardInterrupt


def repeat_lost_interrupt() -> None:
    """Interrupt again if a library has swallowed the first KeyboardInterrupt."""
    if _interrupts.is_set():
        _interrupts.clear()
        signal.raise_signal(signal.SIGINT)


def leave_terminal() -> None:
    """Drop what would be printed in a closed terminal."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        if os.isatty(stream) or not _is_writable(stream):
            os.dup2(nowhere, stream)
    os.close(nowhere)


def _is_writable(stream: int) -> bool:
    """Return whether a stream is open, and no terminal that was closed."""
    try:
        os.write(stream, b"")
    except OSError:
        return False
    return True
