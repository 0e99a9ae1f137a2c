"""What a trial's processes have written, and go on to write."""

from collections.abc import Callable, Iterator
from pathlib import Path

from tune_tf.secrets import masked

_CHUNK_BYTES = 65_536
_LOOK_EVERY_S = 0.5


def log_text(
    path: Path,
    *,
    last_lines: int | None = None,
    is_over: Callable[[], bool] = lambda: True,
    wait: Callable[[float], None],
) -> Iterator[bytes]:
    """Yield what a log holds, then what is added to it, until nothing more can come.

    Whole lines at a time, in which secrets are masked.

    Args:
        path: The log; it may be missing yet.
        last_lines: Begin with so many of the lines that there are; None for all.
        is_over: Whether nothing more will be written.
        wait: Waits for some seconds.
    """
    place = 0 if last_lines is None else _start_of(path, last_lines)
    rest = b""
    while True:
        over = is_over()  # before reading: what was written before the end is read
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
    return masked(text.decode(errors="surrogateescape")).encode(errors="surrogateescape")


def _read(path: Path, place: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(place)
            return file.read(_CHUNK_BYTES)
    except FileNotFoundError:
        return b""


def _start_of(path: Path, last_lines: int) -> int:
    """Return where the last lines of a file begin."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return 0
    kept = data.splitlines(keepends=True)[-last_lines:] if last_lines else []
    return len(data) - sum(map(len, kept))
