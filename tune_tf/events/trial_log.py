"""What a trial's processes write to stdout and stderr, in a file of the trial's folder."""

import logging
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

TRIAL_LOG = "log.txt"
"""Name of the file, in a trial's folder."""

_log = logging.getLogger(__name__)


class TrialLog:
    """Sends what this process writes to the log of the trial that it serves.

    The system's streams are redirected, not Python's: what TensorFlow's own code writes before a
    process dies is in the log too. Several processes may append to one log.

    Args:
        streams: File descriptors.
    """

    def __init__(self, streams: Sequence[int] = (1, 2)) -> None:
        self._streams = tuple(streams)
        self._own: tuple[int, ...] = ()

    def begin(self, path: Path | None) -> None:
        """Write to a trial's log from now on; to where it was before for None.

        A sweep's folder that cannot be reached from this node is a warning, and no more.

        Args:
            path: The log; the trial's folder is made where it is missing.
        """
        self.end()
        if path is None:
            return
        try:
            path.parent.mkdir(exist_ok=True)  # Tune makes it later
            file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        except OSError as error:
            _log.warning("the trial has no log: %s", error)
            return
        self._own = tuple(os.dup(stream) for stream in self._streams)
        for stream in self._streams:
            os.dup2(file, stream)
        os.close(file)

    def end(self) -> None:
        """Write to where it was before."""
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        for stream, own in zip(self._streams, self._own, strict=False):
            os.dup2(own, stream)
            os.close(own)
        self._own = ()


def mask_log(path: Path, values: Iterable[str]) -> None:
    """Put stars in the place of secrets in a log, which may still be written to.

    Nothing moves: a secret gets as many stars as it has bytes.

    Args:
        path: The log; nothing is done where there is none.
        values: The secrets.
    """
    secrets = sorted({value.encode() for value in values}, key=len, reverse=True)
    if not secrets:
        return
    found = re.compile(b"|".join(map(re.escape, secrets)))
    try:
        with path.open("r+b") as file:
            for line_at, line in _lines(file):
                for match in found.finditer(line):
                    os.pwrite(file.fileno(), b"*" * len(match[0]), line_at + match.start())
    except FileNotFoundError:
        return
    except OSError as error:
        _log.warning("secrets in %s could not be masked: %s", path, error)


def _lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield each line with its place."""
    place = 0
    for line in file:
        yield place, line
        place += len(line)


def log_path(folder: Path | None, trial_name: str) -> Path | None:
    """Return where the log of a trial is; None without a folder of its sweep."""
    return None if folder is None else folder / trial_name / TRIAL_LOG
