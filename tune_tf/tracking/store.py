"""MLflow's store: the default one of the process, validation of its settings, and connection."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tune_tf.errors import InvalidSettingsError, did_you_mean, one_of
from tune_tf.secrets import mask_secrets
from tune_tf.tracking.names import MAX_EXPERIMENT_NAME_LENGTH, one_line

if TYPE_CHECKING:
    from mlflow import MlflowClient

_DEFAULT_URI = "sqlite:///mlflow.db"
_DEFAULT_EXPERIMENT = "tune_tf"
_URI = "MLFLOW_TRACKING_URI"
_NAME = "MLFLOW_EXPERIMENT_NAME"
_ID = "MLFLOW_EXPERIMENT_ID"

_ENVIRONMENT = {
    # MLflow would print a server's address for each run, with any password in it.
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    # The writer retries. MLflow's own retries would create a second run if the first response was
    # lost, and delay the end of a sweep by minutes.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
    "GIT_PYTHON_REFRESH": "quiet",
}
_NOISY = {
    "alembic": logging.WARNING,
    "mlflow.store.db.utils": logging.CRITICAL,  # logs tracebacks of raised errors
    "mlflow.utils.git_utils": logging.ERROR,
    "mlflow.tracking.context.registry": logging.ERROR,
}
_SERVERS = ("http", "https")
_NAMED = ("databricks", "databricks-uc", "uc")
# SQLAlchemy's default drivers of the databases besides SQLite.
_DRIVERS = {"postgresql": "psycopg2", "mysql": "MySQLdb", "mssql": "pyodbc"}
# Other drivers are named like their module.
_MODULES = {"mysqldb": "MySQLdb", "mysqlconnector": "mysql"}
_USER, _PASSWORD, _TOKEN = (f"MLFLOW_TRACKING_{each}" for each in ("USERNAME", "PASSWORD", "TOKEN"))
_FILE_STORE = "MLFLOW_ALLOW_FILE_STORE"


def process_tracking_uri() -> str:
    """Return the tracking URI of this process."""
    mlflow = sys.modules.get("mlflow")
    is_set = getattr(mlflow, "is_tracking_uri_set", None)  # absent while another thread imports it
    if mlflow is not None and is_set is not None and is_set():
        return str(mlflow.get_tracking_uri())
    return os.environ.get(_URI) or _DEFAULT_URI


def process_experiment_name(tracking_uri: str) -> str:
    """Return the name of the experiment of this process, whose id counts in its own store only.

    ``mlflow.set_experiment`` also sets the variable with the id.

    Raises:
        InvalidSettingsError: The experiment cannot be read.
    """
    experiment_id = os.environ.get(_ID)
    if not experiment_id or tracking_uri != process_tracking_uri():
        return os.environ.get(_NAME) or _DEFAULT_EXPERIMENT
    source, remedy = f"{_ID}={experiment_id!r}", "choose another one, or set experiment_name"
    client = connect(tracking_uri)
    from mlflow.exceptions import MlflowException  # loaded with the client

    try:
        experiment = client.get_experiment(experiment_id)
    except MlflowException as error:
        raise InvalidSettingsError(
            f"{source} cannot be read from {mask_secrets(tracking_uri)}: "
            f"{mask_secrets(str(error))}; {remedy}"
        ) from error
    if experiment.lifecycle_stage != "active":
        raise InvalidSettingsError(
            f"{source} is the experiment {experiment.name!r}, which was deleted: {remedy}"
        )
    return str(experiment.name)


def connect(tracking_uri: str) -> "MlflowClient":
    """Load MLflow and open a store.

    Sets environment variables that the user has not set: no telemetry, no printed address per run,
    and one attempt of at most 30 seconds per HTTP request (``MLFLOW_HTTP_REQUEST_MAX_RETRIES``,
    ``MLFLOW_HTTP_REQUEST_TIMEOUT``), since the writer retries itself.
    """
    if "DO_NOT_TRACK" not in os.environ:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    for name, level in _NOISY.items():
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(level)
    # Imported late: it takes seconds.
    from mlflow import MlflowClient

    if path := sqlite_path(tracking_uri):
        create_sqlite_store(path)
    return MlflowClient(tracking_uri=tracking_uri)


def create_sqlite_store(path: Path) -> None:
    """Create MLflow's SQLite store atomically, unless the file exists.

    MLflow creates tables one by one: a process killed meanwhile would leave a store that MLflow can
    neither read nor repair. The tables are therefore created in a temporary file, which is then
    hard-linked to ``path``. Without hard links, MLflow creates the store when it opens it.

    Raises:
        OSError: The folder cannot be created or written to.
    """
    if path.exists():
        return
    # Imported late: it takes seconds.
    from mlflow import MlflowClient

    path.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as folder:
        partial = Path(folder, path.name)
        MlflowClient(f"sqlite:///{partial}").search_experiments(max_results=1)
        partial.chmod(0o600)  # runs describe code, data and machines
        with suppress(OSError):
            os.link(partial, path)


def read_credentials() -> dict[str, str]:
    """Return the environment variables with MLflow's user, password or token that are set."""
    return {name: os.environ[name] for name in (_USER, _PASSWORD, _TOKEN) if name in os.environ}


def sqlite_path(uri: str) -> Path | None:
    """Return the file of a SQLite URI; None for other URIs and in-memory databases."""
    if urlsplit(uri).scheme.split("+", 1)[0] != "sqlite":
        return None
    path = uri.split(":///", 1)[-1].split("?", 1)[0]
    return None if path in ("", ":memory:") or path == uri else Path(path)


def check_names(experiment_name: str, sweep_id: str | None = None) -> None:
    """Validate an experiment name and a sweep id.

    Raises:
        InvalidSettingsError: MLflow cannot store or find one of them.
    """
    errors = []
    printable = one_line(experiment_name, MAX_EXPERIMENT_NAME_LENGTH)
    if not experiment_name or experiment_name != printable:
        errors.append(
            f"experiment_name must be 1 to {MAX_EXPERIMENT_NAME_LENGTH} printable characters "
            f"without leading or trailing spaces, not {experiment_name!r}"
        )
    if sweep_id is not None and (not sweep_id or "'" in sweep_id):
        errors.append(f"sweep_id must be text without quotes, not {sweep_id!r}")
    if errors:
        raise InvalidSettingsError(errors)


def check_tracking_uri(uri: str) -> None:
    """Validate a tracking URI, such as ``sqlite:///mlflow.db`` or ``https://mlflow.example.org``.

    Raises:
        InvalidSettingsError: The scheme is unknown, a server's address or credentials are
            incomplete, a database driver is not installed, or a SQLite file cannot be created or
            written.
    """
    if uri in _NAMED:
        return
    try:
        errors = list(_uri_errors(uri))
    except ValueError as error:  # of a bracket in the host
        errors = [f"tracking_uri {mask_secrets(uri)!r} is no valid URI ({error}): correct it"]
    if errors:
        raise InvalidSettingsError(errors)


def _uri_errors(uri: str) -> Iterator[str]:
    scheme = urlsplit(uri).scheme
    base = scheme.split("+", 1)[0]
    setting = f"tracking_uri {mask_secrets(uri)!r}"
    if scheme in ("", "file"):
        if os.environ.get(_FILE_STORE, "").lower() not in ("true", "1"):
            yield (
                f"{setting} is a directory, which MLflow no longer writes to; use a database such "
                "as 'sqlite:///mlflow.db', a server such as 'http://localhost:5000', or set "
                f"{_FILE_STORE}=true"
            )
    elif base == "sqlite":
        yield from _sqlite_errors(uri, setting)
    elif base in _SERVERS:
        yield from _server_errors(uri, setting)
    elif base in _DRIVERS:
        driver_name = scheme.partition("+")[2]
        driver = _MODULES.get(driver_name, driver_name) or _DRIVERS[base]
        if find_spec(driver) is None:
            yield (
                f"{setting} needs the package {driver!r}, which is not installed; install it, "
                f"or name another driver as in '{base}+DRIVER://'"
            )
    else:
        plugins = (point.name for point in entry_points(group="mlflow.tracking_store"))
        schemes = sorted({"sqlite", *_DRIVERS, *_SERVERS, *_NAMED, *plugins})
        if base not in schemes:
            yield (
                f"{setting} has the scheme {scheme!r}; MLflow supports {one_of(schemes)}"
                f"{did_you_mean(base, schemes)}"
            )


def _server_errors(uri: str, setting: str) -> Iterator[str]:
    parts = urlsplit(uri)
    if not parts.hostname:
        yield f"{setting} has no host: write it as in 'http://localhost:5000'"
    try:
        _ = parts.port
    except ValueError as error:
        yield f"{setting}: {error}; correct the number after the colon"
    if "@" in parts.netloc and not (parts.username and parts.password):
        yield f"{setting}: give both as user:password@, or neither"


def _sqlite_errors(uri: str, setting: str) -> Iterator[str]:
    path = sqlite_path(uri)
    if path is None:
        yield (
            f"{setting} names no file; write 'sqlite:///mlflow.db' for a file here or "
            "'sqlite:////data/mlflow.db' for an absolute path"
        )
        return
    if path.is_dir():
        yield f"{setting} names a directory; name a file in it"
        return
    folder = path.absolute().parent
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        yield f"{setting}: {folder} is not a writable directory"
    elif path.exists() and not os.access(path, os.W_OK):
        yield f"{setting}: {path} is not writable"
