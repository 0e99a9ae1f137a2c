"""Log file of a trial: the stdout and stderr of its processes."""

import logging
import os
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

TRIAL_LOG = "log.txt"
"""Name of the log in a trial's folder."""

_log = logging.getLogger(__name__)


class TrialLog:
    """Redirection of this process's output to the log of its trial.

    Redirects file descriptors instead of ``sys.stdout``, to include TensorFlow's native messages.
    Several processes may append to one log.

    Args:
        streams: File descriptors.
    """

    def __init__(self, streams: Sequence[int] = (1, 2)) -> None:
        self._streams = tuple(streams)
        self._own: tuple[int, ...] = ()

    def begin(self, path: Path | None) -> None:
        """Redirect output to a log in a folder created if missing; None for the original streams.

        A folder that this node cannot reach causes a warning only.
        """
        self.end()
        if path is None:
            return
        try:
            path.parent.mkdir(exist_ok=True)  # Tune creates it later
            file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        except OSError as error:
            _log.warning("the trial has no log: %s", error)
            return
        self._own = tuple(os.dup(stream) for stream in self._streams)
        for stream in self._streams:
            os.dup2(file, stream)
        os.close(file)

    def end(self) -> None:
        """Restore the original streams."""
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        for stream, own in zip(self._streams, self._own, strict=False):
            os.dup2(own, stream)
            os.close(own)
        self._own = ()


def mask_log(path: Path, values: Iterable[str]) -> None:
    """Overwrite secrets in a log with stars, in place since processes may still append to it.

    A missing log is no error.
    """
    secrets = sorted({value.encode() for value in values}, key=len, reverse=True)
    if not secrets:
        return
    found = re.compile(b"|".join(map(re.escape, secrets)))
    try:
        with path.open("r+b") as file:
            position = 0
            for line in file:
                for match in found.finditer(line):
                    os.pwrite(file.fileno(), b"*" * len(match[0]), position + match.start())
                position += len(line)
    except FileNotFoundError:
        return
    except OSError as error:
        _log.warning("secrets in %s could not be masked: %s", path, error)


def log_path(folder: Path | None, trial_name: str) -> Path | None:
    """Return the path of a trial's log; None without a sweep folder."""
    return None if folder is None else folder / trial_name / TRIAL_LOG
