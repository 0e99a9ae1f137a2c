"""Tracking URIs: what can be known to be wrong without a network and without loading MLflow."""

import os
from importlib.metadata import entry_points
from pathlib import Path
from urllib.parse import urlsplit

from tune_tf.errors import InvalidSettingsError, near_ones, one_of

_DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
_SERVERS = ("http", "https")
_NAMED = ("databricks", "databricks-uc", "uc")
_FILE_STORE = "MLFLOW_ALLOW_FILE_STORE"


def check_tracking_uri(uri: str) -> None:
    """Refuse a tracking URI that cannot work.

    Args:
        uri: Where MLflow keeps its runs, for example ``sqlite:///mlflow.db`` or
            ``https://mlflow.example.org``.

    Raises:
        InvalidSettingsError: The scheme is not one that MLflow knows, a server has no host, or
            the directory of a SQLite file cannot be made or written.
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
        if not urlsplit(uri).hostname:
            raise InvalidSettingsError([f"tracking_uri {uri!r} has no host"])
    elif base not in (known := _schemes()):
        raise InvalidSettingsError(
            [
                (
                    f"tracking_uri {uri!r} has the scheme {scheme!r}; MLflow knows "
                    f"{one_of(known)}{near_ones(base, known)}"
                )
            ]
        )


def sqlite_path(uri: str) -> Path | None:
    """Return the file of a SQLite URI; None for other URIs and for a database in memory."""
    if urlsplit(uri).scheme.split("+", 1)[0] != "sqlite":
        return None
    path = uri.split(":///", 1)[-1].split("?", 1)[0]
    return None if path in ("", ":memory:") or path == uri else Path(path)


def _schemes() -> list[str]:
    plugins = (point.name for point in entry_points(group="mlflow.tracking_store"))
    return sorted({*_DATABASES, *_SERVERS, *_NAMED, *plugins})


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
        raise InvalidSettingsError(
            [f"tracking_uri {uri!r}: {near} is not a directory that can be written to"]
        )
    if path.exists() and not os.access(path, os.W_OK):
        raise InvalidSettingsError([f"tracking_uri {uri!r}: {path} cannot be written to"])
