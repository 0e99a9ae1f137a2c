"""Log file of a trial, the stdout and stderr of its processes: writing, masking, following."""

import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from tune_tf.secrets import mask_secrets

_CHUNK_BYTES = 65_536
_CHECK_EVERY_S = 0.5
TRIAL_LOG = "log.txt"
"""Name of the log in a trial's folder."""
FILES = "files"
"""Name of the folder in it for files of Keras' callbacks."""
_log = logging.getLogger(__name__)


class TrialLog:
    """Redirection of this process's file descriptors, native messages included, to a trial's log.

    Several processes may append to one log.
    """

    def __init__(self, streams: Sequence[int] = (1, 2)) -> None:
        self._streams = tuple(streams)
        self._originals: tuple[int, ...] = ()

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
        self._originals = tuple(os.dup(stream) for stream in self._streams)
        for stream in self._streams:
            os.dup2(file, stream)
        os.close(file)

    def end(self) -> None:
        """Restore the original streams."""
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        for stream, original in zip(self._streams, self._originals, strict=False):
            os.dup2(original, stream)
            os.close(original)
        self._originals = ()


def mask_log(path: Path, values: Iterable[str]) -> None:
    """Overwrite secrets in a log with stars, in place since processes may still append to it.

    A missing log is no error.
    """
    secrets = sorted({value.encode() for value in values}, key=len, reverse=True)
    if not secrets:
        return
    pattern = re.compile(b"|".join(map(re.escape, secrets)))
    try:
        with path.open("r+b") as file:
            position = 0
            for line in file:
                for match in pattern.finditer(line):
                    os.pwrite(file.fileno(), b"*" * len(match[0]), position + match.start())
                position += len(line)
    except FileNotFoundError:
        return
    except OSError as error:
        _log.warning("secrets in %s could not be masked: %s", path, error)


def log_path(folder: Path | None, trial_name: str) -> Path | None:
    """Return the path of a trial's log; None without a sweep folder."""
    return None if folder is None else folder / trial_name / TRIAL_LOG


def log_text(
    path: Path,
    *,
    last_lines: int | None = None,
    is_over: Callable[[], bool] = lambda: True,
    wait: Callable[[float], None],
) -> Iterator[bytes]:
    """Yield the lines of a log and then additions, until it is complete, with secrets masked."""
    offset = 0 if last_lines is None else _start_of(path, last_lines)
    pending = b""
    while True:
        is_complete = is_over()  # before reading, so that nothing is missed
        while chunk := _read(path, offset):
            offset += len(chunk)
            pending += chunk
            end = max(pending.rfind(b"\n"), pending.rfind(b"\r")) + 1
            if not end and len(pending) > _CHUNK_BYTES:
                end = len(pending)
            if end:
                yield _masked(pending[:end])
            pending = pending[end:]
        if is_complete:
            if pending:
                yield _masked(pending)
            return
        wait(_CHECK_EVERY_S)


def _masked(text: bytes) -> bytes:
    return mask_secrets(text.decode(errors="surrogateescape")).encode(errors="surrogateescape")


def _read(path: Path, offset: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(_CHUNK_BYTES)
    except FileNotFoundError:
        return b""


def _start_of(path: Path, last_lines: int) -> int:
    """Return the offset of the last lines of a file."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return 0
    lines = data.splitlines(keepends=True)[-last_lines:] if last_lines else []
    return len(data) - sum(map(len, lines))
