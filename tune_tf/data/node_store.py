"""Store of computed values that the processes of a node share."""

import atexit
import contextlib
import fcntl
import functools
import logging
import mmap
import os
import pickle
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import psutil
from filelock import FileLock

TENSOR_ALIGNMENT = 64
"""Bytes; an array that starts elsewhere is copied by TensorFlow in each process."""

_FREE_SHARE = 0.05
"""Share of a disk that stays free; Ray spills nothing to a disk with less."""

_SHARE_OF_MEMORY = 0.25
_PREFIX = "tune_tf-node-"
_log = logging.getLogger(__name__)


class NodeStore:
    """Values that are computed once per node, by whichever process needs them first.

    A value is a file that each process maps, so that its arrays are read-only pages which the
    processes share. Arrays that lie in another value of the store are not written again. A value
    for which the disk has no room is computed by each process.

    Args:
        folder: Folder of the files.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._maps: dict[str, mmap.mmap] = {}

    def get(self, key: str, compute: Callable[[], Any]) -> Any:
        """Return the value of a key, a file name, computing it if no process of the node did.

        Others that ask meanwhile wait; if the computing process ends or fails, the next computes.

        Raises:
            Exception: Any exception of ``compute``.
        """
        if key not in self:
            with self.locked(key):
                if key not in self:
                    value = compute()
                    if not self._write(key, value):
                        return value
        return self._read(key)

    def __contains__(self, key: str) -> bool:
        """Return whether a value is stored."""
        return (self.folder / key).exists()

    @property
    def max_bytes(self) -> float:
        """Bytes that an optional value may take, the same for all trials of a node."""
        return _SHARE_OF_MEMORY * float(psutil.virtual_memory().total)

    def locked(self, key: str) -> FileLock:
        """Return a lock among the processes; one that ends in any way releases it."""
        return FileLock(self.folder / f"{key}.lock")

    def _write(self, key: str, value: Any) -> bool:
        """Store a value; return whether the disk has room for it."""
        from ray import cloudpickle  # unlike pickle, it supports classes defined in a script

        buffers: list[memoryview] = []
        content = cloudpickle.dumps(
            value, protocol=5, buffer_callback=lambda buffer: buffers.append(buffer.raw())
        )
        partial = self.folder / f"{key}.partial"
        try:
            with partial.open("wb") as file:
                places = [self._place_of(each) or self._append(file, each) for each in buffers]
                start = file.tell()
                pickle.dump((content, places), file)
                file.write(start.to_bytes(8, "little"))
        except OSError as error:
            partial.unlink(missing_ok=True)
            _warn(f"Processes compute data that others have computed: {self.folder}: {error}")
            return False
        partial.rename(self.folder / key)
        return True

    def _append(self, file: BinaryIO, buffer: memoryview) -> tuple[str, int, int]:
        disk = shutil.disk_usage(self.folder)
        if len(buffer) > disk.free - _FREE_SHARE * disk.total:
            raise OSError(f"the disk has no room for {len(buffer)} bytes more")
        file.write(bytes(-file.tell() % TENSOR_ALIGNMENT))
        start = file.tell()
        file.write(buffer)
        return "", start, len(buffer)

    def _place_of(self, buffer: memoryview) -> tuple[str, int, int] | None:
        """Return the place of a buffer in another value, if TensorFlow can read it there."""
        for key, pages in self._maps.items():
            offset = _address(buffer) - _address(memoryview(pages))
            inside = 0 <= offset <= len(pages) - len(buffer)
            if inside and len(buffer) and offset % TENSOR_ALIGNMENT == 0:
                return key, offset, len(buffer)
        return None

    def _read(self, key: str) -> Any:
        pages = memoryview(self._map(key))
        start = int.from_bytes(pages[-8:], "little")
        content, places = pickle.loads(pages[start:])  # noqa: S301  of the same job
        buffers = [
            memoryview(self._map(other or key))[first : first + size]
            for other, first, size in places
        ]
        return pickle.loads(content, buffers=buffers)  # noqa: S301  as above

    def _map(self, key: str) -> mmap.mmap:
        if key not in self._maps:
            with (self.folder / key).open("rb") as file:
                self._maps[key] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return self._maps[key]


def _address(buffer: memoryview) -> int:
    return int(np.frombuffer(buffer, np.uint8).ctypes.data) if len(buffer) else 0


@functools.cache
def _warn(text: str) -> None:
    _log.warning("%s", text)


def is_connected() -> bool:
    """Return whether this process is connected to a Ray cluster."""
    ray = sys.modules.get("ray")  # without importing it: a process without Ray is not connected
    return ray is not None and ray.is_initialized()


def is_actor() -> bool:
    """Return whether this process is an actor of a Ray cluster, as a trial of a sweep is."""
    if not is_connected():
        return False
    import ray

    return ray.get_runtime_context().get_actor_id() is not None


def node_store() -> NodeStore:
    """Return the store that this process shares with the actors of its Ray job on its node.

    Its folder is in that of Ray's session. A process that is no actor has a store of its own.
    """
    if not is_actor():
        return _opened(Path(tempfile.gettempdir(), f"{_PREFIX}{os.getpid()}"))
    import ray

    context = ray.get_runtime_context()
    name = f"{_PREFIX}{context.get_job_id()}-{context.get_node_id()}"
    return _opened(Path(context.get_temp_dir(), context.get_session_name(), name))


@functools.cache
def _opened(folder: Path) -> NodeStore:
    """Return the store in a folder that the last process to end removes.

    Folders of processes that were killed are removed first.
    """
    roots = (folder.parent, *folder.parent.parent.glob("session_*"))
    for unused in {path for root in roots for path in root.glob(f"{_PREFIX}*")}:
        remove_if_unused(unused)
    atexit.register(remove_if_unused, folder, lock_shared(folder))
    return NodeStore(folder)


def lock_shared(folder: Path) -> int:
    """Create a folder if it does not exist; it is in use until the returned file is closed."""
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # another process has removed it
            file = os.open(folder, os.O_RDONLY)
            fcntl.flock(file, fcntl.LOCK_SH)
            if os.path.samestat(os.fstat(file), folder.stat()):
                return file


def remove_if_unused(folder: Path, lock: int | None = None) -> None:
    """Remove a folder that no other process uses; ``lock`` is this process's, to be closed."""
    with contextlib.suppress(OSError):
        file = os.open(folder, os.O_RDONLY) if lock is None else lock
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder)
        finally:
            os.close(file)
