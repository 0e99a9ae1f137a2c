"""A folder in which each write is a point where the process may die, also in the middle of it.

What a dead process has not handed to the system is lost, as are the buffers of its open files.
Files bear the virtual time.
"""

import builtins
import contextlib
import io
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from turns import Turns

_REAL = {
    name: getattr(os, name)
    for name in (
        "chmod",
        "close",
        "fsync",
        "ftruncate",
        "mkdir",
        "open",
        "pwrite",
        "remove",
        "rename",
        "replace",
        "rmdir",
        "symlink",
        "unlink",
        "write",
    )
}
_REAL_OPEN = io.open
_PATHS = ("chmod", "mkdir", "remove", "rename", "replace", "rmdir", "symlink", "unlink")
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NUMBER = re.compile(r"\d[\d_-]*")
_WRITES = os.O_WRONLY | os.O_RDWR


class Disk:
    """Notices what is written below a folder.

    Args:
        root: The folder.
        turns: Told of each write.
    """

    def __init__(self, root: Path, turns: Turns) -> None:
        self._root = f"{root}/"
        self._turns = turns
        self._open: dict[int, str] = {}

    @contextlib.contextmanager
    def noticing(self) -> Iterator[None]:
        """Stand between Python and the system for a while."""
        replaced: dict[str, Callable[..., Any]] = {name: self._changing(name) for name in _PATHS}
        replaced |= {
            "open": self._os_open,
            "close": self._close,
            "write": self._write,
            "pwrite": self._pwrite,
            "ftruncate": self._ftruncate,
            "fsync": self._fsync,
        }
        for name, function in replaced.items():
            setattr(os, name, function)
        io.open = builtins.open = self._file
        try:
            yield
        finally:
            io.open = builtins.open = _REAL_OPEN
            for name, function in _REAL.items():
                setattr(os, name, function)

    def end_process(self) -> None:
        """Close what a dead process had open, as the system does."""
        for file in list(self._open):
            with contextlib.suppress(OSError):
                _REAL["close"](file)
        self._open.clear()

    def is_ours(self, path: object) -> bool:
        """Return whether a path is below the folder."""
        return isinstance(path, str | os.PathLike) and os.fspath(path).startswith(self._root)

    def told(self, path: object) -> str:
        """Return a file's name as it stands in a label: without what differs between sweeps."""
        return _NUMBER.sub("#", _ID.sub("", os.path.basename(os.fspath(path))))

    def stamp(self, path: str) -> None:
        """Give a file the virtual time."""
        time_ns = int(self._turns.now * 1e9)
        with contextlib.suppress(OSError):
            os.utime(path, ns=(time_ns, time_ns), follow_symlinks=False)

    def _changing(self, name: str) -> Callable[..., Any]:
        real = _REAL[name]

        def change(path: Any, *args: Any, **options: Any) -> Any:
            target = args[0] if name == "symlink" else path
            if not self.is_ours(target):
                return real(path, *args, **options)
            self._turns.point(f"{name} {self.told(target)}")
            result = real(path, *args, **options)
            if name == "symlink":
                self.stamp(target)
            return result

        return change

    def _os_open(self, path: Any, flags: int, *args: Any, **options: Any) -> int:
        writes = bool(flags & _WRITES) and self.is_ours(path)
        if writes and not (flags & os.O_CREAT and os.path.exists(path)):
            self._turns.point(f"open {self.told(path)}")
        file: int = _REAL["open"](path, flags, *args, **options)
        if writes:
            self._open[file] = os.fspath(path)
        return file

    def _close(self, file: int) -> None:
        self._open.pop(file, None)
        _REAL["close"](file)

    def _write(self, file: int, data: bytes) -> int:
        path = self._open.get(file)
        if path is not None:
            half = data[: len(data) // 2]
            self._turns.point(f"append {self.told(path)}", lambda: _REAL["write"](file, half))
        return int(_REAL["write"](file, data))

    def _pwrite(self, file: int, data: bytes, offset: int) -> int:
        if file in self._open:
            self._turns.point(f"write {self.told(self._open[file])}")
        return int(_REAL["pwrite"](file, data, offset))

    def _ftruncate(self, file: int, length: int) -> None:
        if file in self._open:
            self._turns.point(f"truncate {self.told(self._open[file])}")
        _REAL["ftruncate"](file, length)

    def _fsync(self, file: Any) -> None:
        """Do nothing: only processes die here, not the machine."""

    def _file(
        self,
        file: Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        closefd: bool = True,
        opener: Any = None,
    ) -> Any:
        if not (set(mode) & set("wax+") and self.is_ours(file)):
            return _REAL_OPEN(file, mode, buffering, encoding, errors, newline, closefd, opener)
        raw_mode = mode.replace("b", "").replace("t", "")
        if "w" in mode or not os.path.exists(file):
            self._turns.point(f"open {self.told(file)}")
        raw = _NoticedFile(os.fspath(file), raw_mode, self)
        if buffering == 0:
            return raw
        kind = io.BufferedRandom if "+" in mode else io.BufferedWriter
        buffered = kind(raw)
        return buffered if "b" in mode else io.TextIOWrapper(buffered, encoding, errors, newline)


class _NoticedFile(io.FileIO):
    """A file whose every write is a point; a dead process writes nothing more to it."""

    def __init__(self, path: str, mode: str, disk: Disk) -> None:
        super().__init__(path, mode)
        self._disk = disk

    def write(self, data: Any) -> int:
        """Hand bytes to the system."""
        turns = self._disk._turns
        whole = bytes(data)
        if turns.dead:
            return len(whole)
        write, half = super().write, whole[: len(whole) // 2]
        turns.point(f"write {self._disk.told(self.name)}", lambda: write(half))
        return int(write(whole))

    def close(self) -> None:
        """Close the file."""
        if not self.closed and not self._disk._turns.dead:
            self._disk.stamp(self.name)
        super().close()
