"""Reading and following of a trial's log."""

from collections.abc import Callable, Iterator
from pathlib import Path

from tune_tf.secrets import mask_secrets

_CHUNK_BYTES = 65_536
_LOOK_EVERY_S = 0.5


def log_text(
    path: Path,
    *,
    last_lines: int | None = None,
    is_over: Callable[[], bool] = lambda: True,
    wait: Callable[[float], None],
) -> Iterator[bytes]:
    """Yield the content of a log and then additions, until it is complete.

    Yields whole lines, with secrets masked.

    Args:
        path: The log; may not exist yet.
        last_lines: Number of existing lines to start with; None for all.
        is_over: Returns whether the log is complete.
        wait: Sleeps for a number of seconds.
    """
    place = 0 if last_lines is None else _start_of(path, last_lines)
    rest = b""
    while True:
        over = is_over()  # before reading, so that nothing is missed
        while chunk := _read(path, place):
            place += len(chunk)
            rest += chunk
            whole = max(rest.rfind(b"\n"), rest.rfind(b"\r")) + 1
            if not whole and len(rest) > _CHUNK_BYTES:
                whole = len(rest)
            if whole:
                yield _masked(rest[:whole])
            rest = rest[whole:]
        if over:
            if rest:
                yield _masked(rest)
            return
        wait(_LOOK_EVERY_S)


def _masked(text: bytes) -> bytes:
    return mask_secrets(text.decode(errors="surrogateescape")).encode(errors="surrogateescape")


def _read(path: Path, place: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(place)
            return file.read(_CHUNK_BYTES)
    except FileNotFoundError:
        return b""


def _start_of(path: Path, last_lines: int) -> int:
    """Return the offset of the last lines of a file."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return 0
    kept = data.splitlines(keepends=True)[-last_lines:] if last_lines else []
    return len(data) - sum(map(len, kept))
