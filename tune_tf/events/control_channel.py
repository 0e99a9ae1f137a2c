"""File-based requests to a running sweep from other processes or machines."""

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

_FOLDER = "requests"
_SUFFIX = ".request"  # Tune would copy .json files


class ControlChannel:
    """Requests to the driver of a sweep, one file each.

    Args:
        folder: The sweep's folder.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / _FOLDER

    def post(self, request: Mapping[str, Any]) -> None:
        """Write a request atomically.

        Raises:
            OSError: The request cannot be written.
        """
        self._path.mkdir(exist_ok=True)
        name = f"{time.time_ns()}-{os.getpid()}"
        partial = self._path / f".{name}"
        partial.write_text(json.dumps(request))
        partial.rename(self._path / f"{name}{_SUFFIX}")

    def take(self) -> Iterator[dict[str, Any]]:
        """Yield and remove the pending requests, the oldest first."""
        for path in sorted(self._path.glob(f"*{_SUFFIX}")):
            request = None
            with suppress(OSError, ValueError):
                request = json.loads(path.read_text())
            path.unlink(missing_ok=True)
            if isinstance(request, dict):
                yield request

    def clear(self) -> None:
        """Remove all requests, which are for an earlier driver."""
        for _ in self.take():
            pass
