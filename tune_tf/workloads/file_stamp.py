"""File stamps that detect changed data files."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tune_tf.errors import WorkloadError


@dataclass(frozen=True)
class FileStamp:
    """Sizes and modification times of files, for detecting changes during a sweep.

    Copies that preserve times (``cp -p``, ``rsync -a``) are equal. Times are whole seconds, because
    many file systems and archives store no more.
    """

    num_files: int
    num_bytes: int
    digest: str

    @classmethod
    def of(cls, paths: Iterable[Path]) -> Self:
        """Return the stamp of files.

        Raises:
            WorkloadError: A file is missing or inaccessible.
        """
        digest = hashlib.sha256()
        num_files = num_bytes = 0
        for path in paths:
            try:
                stat = path.stat()
            except OSError as error:
                raise WorkloadError(f"the file {path} cannot be read: {error.strerror}") from error
            digest.update(
                f"{path.parent.name}/{path.name} {stat.st_size} {int(stat.st_mtime)}\n".encode()
            )
            num_files += 1
            num_bytes += stat.st_size
        return cls(num_files, num_bytes, digest.hexdigest())

    def __str__(self) -> str:
        """Return the number of files and bytes as text."""
        files = "1 file" if self.num_files == 1 else f"{self.num_files:,} files"
        return f"{files} of {self.num_bytes:,} bytes"


def existing_file(path: str, setting: str) -> Path:
    """Return the path of an existing, non-empty file that a setting names.

    Raises:
        WorkloadError: The file is missing or empty, or the path is a folder.
    """
    found = Path(path)
    if found.is_dir():
        raise WorkloadError(f"{setting}: {path} is a folder: name a file in it")
    if not found.is_file():
        raise WorkloadError(
            f"{setting}: there is no file {path}; relative paths are relative to the folder of the "
            "sweep file"
        )
    if not found.stat().st_size:
        raise WorkloadError(f"{setting}: the file {path} is empty")
    return found
