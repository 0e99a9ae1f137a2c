"""URIs of checkpoints in object stores, accessed with pyarrow."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from tune_tf.errors import CheckpointError

CheckpointLocation = Path | str
"""Location of a checkpoint: a folder or a URI."""


def join_uri(uri: str, *names: str) -> str:
    """Append path components to a URI, before any options after ``?``."""
    parts = urlsplit(uri)
    return parts._replace(path="/".join([parts.path.rstrip("/"), *names])).geturl()


@contextlib.contextmanager
def local_copy(location: CheckpointLocation) -> Iterator[Path]:
    """Provide a local folder with a checkpoint for the duration of the context.

    Raises:
        CheckpointError: It cannot be downloaded.
    """
    if isinstance(location, Path):
        yield location
        return
    from pyarrow import ArrowException, fs  # slow to import; comes with Ray

    with tempfile.TemporaryDirectory(prefix="tune_tf-checkpoint-") as folder:
        try:
            fs.copy_files(location, folder)
        except (ArrowException, OSError) as error:
            raise CheckpointError(f"{location} cannot be fetched: {error}") from error
        yield Path(folder)
