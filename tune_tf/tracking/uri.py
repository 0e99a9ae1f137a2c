"""Validation of tracking URIs without network access, and creation of SQLite stores."""

import os
from contextlib import suppress
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

from tune_tf.errors import InvalidSettingsError, did_you_mean, one_of
from tune_tf.secrets import mask_secrets


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
        made = Path(folder, path.name)
        MlflowClient(f"sqlite:///{made}").search_experiments(max_results=1)
        made.chmod(0o600)  # runs describe code, data and machines
        with suppress(OSError):
            os.link(made, path)


_DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
_DRIVERS = {
    "postgresql": "psycopg2",
    "mysql": "MySQLdb",
    "mssql": "pyodbc",
}  # SQLAlchemy's defaults
_MODULES = {
    "mysqldb": "MySQLdb",
    "mysqlconnector": "mysql",
}  # other drivers are named like their module
_USER, _PASSWORD, _TOKEN = (f"MLFLOW_TRACKING_{each}" for each in ("USERNAME", "PASSWORD", "TOKEN"))
_MLFLOW_FILE = Path("~/.mlflow/credentials")
_SERVERS = ("http", "https")
_NAMED = ("databricks", "databricks-uc", "uc")
_FILE_STORE = "MLFLOW_ALLOW_FILE_STORE"


def check_tracking_uri(uri: str) -> None:
    """Validate a tracking URI, such as ``sqlite:///mlflow.db`` or ``https://mlflow.example.org``.

    Raises:
        InvalidSettingsError: The scheme is unknown, a server's address or credentials are
            incomplete, a database driver is not installed, or a SQLite file cannot be created or
            written.
    """
    if uri in _NAMED:
        return
    scheme = urlsplit(uri).scheme
    base = scheme.split("+", 1)[0]
    if scheme in ("", "file"):
        _check_file_store(uri)
    elif base == "sqlite":
        _check_sqlite(uri)
    elif base in _SERVERS:
        _check_server(uri)
    elif base in _DRIVERS:
        _check_driver(uri, scheme)
    elif base not in (known := _schemes()):
        raise InvalidSettingsError(
            [
                (
                    f"tracking_uri {mask_secrets(uri)!r} has the scheme {scheme!r}; MLflow "
                    f"supports {one_of(known)}{did_you_mean(base, known)}"
                )
            ]
        )


def sqlite_path(uri: str) -> Path | None:
    """Return the file of a SQLite URI; None for other URIs and in-memory databases."""
    if urlsplit(uri).scheme.split("+", 1)[0] != "sqlite":
        return None
    path = uri.split(":///", 1)[-1].split("?", 1)[0]
    return None if path in ("", ":memory:") or path == uri else Path(path)


def _schemes() -> list[str]:
    plugins = (point.name for point in entry_points(group="mlflow.tracking_store"))
    return sorted({*_DATABASES, *_SERVERS, *_NAMED, *plugins})


def _check_server(uri: str) -> None:
    masked_uri = mask_secrets(uri)
    parts = urlsplit(uri)
    errors = []
    if not parts.hostname:
        errors.append(f"tracking_uri {masked_uri!r} has no host")
    try:
        _ = parts.port
    except ValueError as error:
        errors.append(f"tracking_uri {masked_uri!r}: {error}")
    if parts.query or parts.fragment:
        errors.append(
            f"tracking_uri {masked_uri!r} has a ? or #, which a server's address cannot contain; "
            "in a password, write them as %3F or %23"
        )
    if "@" in parts.netloc and not (parts.username and parts.password):
        errors.append(f"tracking_uri {masked_uri!r}: give both as user:password@, or neither")
    if parts.username and os.environ.get(_TOKEN):
        errors.append(
            f"tracking_uri {masked_uri!r} has a user, but {_TOKEN} is set as well: "
            "remove one of them"
        )
    given = [name for name in (_USER, _PASSWORD) if os.environ.get(name)]
    if len(given) == 1 and not _MLFLOW_FILE.expanduser().exists():
        errors.append(f"only {given[0]} is set: set both {_USER} and {_PASSWORD}, or neither")
    if errors:
        raise InvalidSettingsError(errors)


def _check_driver(uri: str, scheme: str) -> None:
    base, _, named = scheme.partition("+")
    driver = _MODULES.get(named, named) or _DRIVERS[base]
    if find_spec(driver) is None:
        raise InvalidSettingsError(
            [
                f"tracking_uri {mask_secrets(uri)!r} needs the package {driver!r}, which is "
                f"not installed; install it, or name another driver as in '{base}+DRIVER://'"
            ]
        )


def _check_file_store(uri: str) -> None:
    if os.environ.get(_FILE_STORE, "").lower() not in ("true", "1"):
        raise InvalidSettingsError(
            [
                (
                    f"tracking_uri {uri!r} is a directory, which MLflow no longer writes to; use "
                    "a database such as 'sqlite:///mlflow.db', a server such as "
                    f"'http://localhost:5000', or set {_FILE_STORE}=true"
                )
            ]
        )


def _check_sqlite(uri: str) -> None:
    path = sqlite_path(uri)
    if path is None:
        raise InvalidSettingsError(
            [
                (
                    f"tracking_uri {uri!r} names no file; write 'sqlite:///mlflow.db' for a file "
                    "here or 'sqlite:////data/mlflow.db' for an absolute path"
                )
            ]
        )
    if path.is_dir():
        raise InvalidSettingsError([f"tracking_uri {uri!r} names a directory; name a file in it"])
    near = path.absolute().parent
    while not near.exists():
        near = near.parent
    if not near.is_dir() or not os.access(near, os.W_OK):
        raise InvalidSettingsError([f"tracking_uri {uri!r}: {near} is not a writable directory"])
    if path.exists() and not os.access(path, os.W_OK):
        raise InvalidSettingsError([f"tracking_uri {uri!r}: {path} is not writable"])
