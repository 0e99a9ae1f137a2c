"""MLflow's store in a SQLite file, made whole or not at all."""

import os
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory


def make_store(path: Path) -> None:
    """Make MLflow's store in a file that is not there yet; leave one that is.

    MLflow makes its tables one by one in the file itself: a process that is killed meanwhile leaves
    one that MLflow can neither read nor mend. Here they are made in a file beside it, which then
    gets its name, unless another process was first. Where the file system has no hard links, MLflow
    makes its tables in its own way when it opens the store.

    Raises:
        OSError: The folder cannot be made or written to.
    """
    if path.exists():
        return
    # Loaded here and not above: it takes seconds.
    from mlflow import MlflowClient

    path.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as folder:
        made = Path(folder, path.name)
        MlflowClient(f"sqlite:///{made}").search_experiments(max_results=1)
        made.chmod(0o600)  # runs tell of code, data and machines
        with suppress(OSError):
            os.link(made, path)
