"""What is asked of a sweep that runs, from another process or machine."""

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

_MAILBOX = "asked"
_SUFFIX = ".letter"  # Tune copies every .json of a sweep's folder about


class ControlChannel:
    """Letters to the driver of a sweep, one a file in a folder of the sweep's.

    Args:
        folder: The sweep's folder.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / _MAILBOX

    def post(self, letter: Mapping[str, Any]) -> None:
        """Leave a letter; it is there whole or not at all.

        Raises:
            OSError: It cannot be written.
        """
        self._path.mkdir(exist_ok=True)
        name = f"{time.time_ns()}-{os.getpid()}"
        partial = self._path / f".{name}"
        partial.write_text(json.dumps(letter))
        partial.rename(self._path / f"{name}{_SUFFIX}")

    def take(self) -> Iterator[dict[str, Any]]:
        """Yield the letters in the order of their writing, and take each away."""
        for path in sorted(self._path.glob(f"*{_SUFFIX}")):
            letter = None
            with suppress(OSError, ValueError):
                letter = json.loads(path.read_text())
            path.unlink(missing_ok=True)
            if isinstance(letter, dict):
                yield letter

    def clear(self) -> None:
        """Take all letters away: they were for an earlier driver."""
        for _ in self.take():
            pass
