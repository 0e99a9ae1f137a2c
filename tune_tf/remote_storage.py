"""URIs of what lies in object stores and the like, which Ray Tune reaches by pyarrow."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from tune_tf.errors import CheckpointError

CheckpointPlace = Path | str
"""Where a checkpoint is: its folder, or a URI."""


def below(uri: str, *names: str) -> str:
    """Return the URI of what lies below another; options after ``?`` stay at its end."""
    parts = urlsplit(uri)
    return parts._replace(path="/".join([parts.path.rstrip("/"), *names])).geturl()


@contextlib.contextmanager
def local_copy(place: CheckpointPlace) -> Iterator[Path]:
    """Have a checkpoint in a folder of this machine, for as long as the context is open.

    Args:
        place: Its folder, which is used as it is, or its URI.

    Raises:
        CheckpointError: It cannot be fetched.
    """
    if isinstance(place, Path):
        yield place
        return
    from pyarrow import ArrowException, fs  # slow to import; comes with Ray

    with tempfile.TemporaryDirectory(prefix="tune_tf-checkpoint-") as folder:
        try:
            fs.copy_files(place, folder)
        except (ArrowException, OSError) as error:
            raise CheckpointError(f"{place} cannot be fetched: {error}") from error
        yield Path(folder)
