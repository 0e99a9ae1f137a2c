from pathlib import Path

import pytest

from tune_tf.errors import InvalidSettingsError
from tune_tf.tracking.store import check_tracking_uri, sqlite_path


@pytest.mark.parametrize(
    "uri",
    [
        "sqlite:///mlflow.db",
        "sqlite:///to/be/made/mlflow.db",
        "http://localhost:5000",
        "https://mlflow.example.org/path",
        "https://user:secret@mlflow.example.org",
        "postgresql+psycopg://user:secret@host/db",
        "databricks",
        "databricks://profile",
    ],
)
def test_a_uri_that_may_work_passes(uri, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check_tracking_uri(uri)


@pytest.mark.parametrize(
    ("uri", "text"),
    [
        ("sqlight:///mlflow.db", "scheme 'sqlight'.*did you mean 'sqlite'"),
        ("redis://host", "scheme 'redis'; MLflow supports one of"),
        ("http://", "has no host"),
        ("http://host:port", "Port could not be cast"),
        ("http://user@host", "give both as user:password@, or neither"),
        ("postgresql+nosuch://host/db", "needs the package 'nosuch', which is not installed"),
        ("./mlruns", "no longer writes to; use a database"),
        ("file:///tmp/mlruns", "no longer writes to; use a database"),
        ("sqlite://", "names no file"),
        ("sqlite:///:memory:", "names no file"),
        ("sqlite:////dev/null/x/mlflow.db", "/dev/null is not a writable directory"),
        ("sqlite:////tmp", "names a directory"),
    ],
)
def test_a_uri_that_cannot_work_is_refused(uri, text, monkeypatch):
    monkeypatch.delenv("MLFLOW_ALLOW_FILE_STORE", raising=False)
    with pytest.raises(InvalidSettingsError, match=text):
        check_tracking_uri(uri)


def test_a_directory_passes_if_mlflow_was_told_to_allow_it(monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    check_tracking_uri("./mlruns")


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("sqlite:///mlflow.db", Path("mlflow.db")),
        ("sqlite:////data/mlflow.db?timeout=5", Path("/data/mlflow.db")),
        ("sqlite://", None),
        ("http://localhost", None),
    ],
)
def test_the_file_of_a_sqlite_uri_is_found(uri, path):
    assert sqlite_path(uri) == path
