import subprocess
import sys
import time
from pathlib import Path

import pytest

from tune_tf.tracking.store import connect, create_sqlite_store

pytestmark = pytest.mark.mlflow

OPEN = "import sys; from tune_tf.tracking.store import connect; connect(sys.argv[1])"


@pytest.fixture
def client(monkeypatch):
    """Replace MLflow's client by one that writes to the file, and lets another process be first."""

    class Client:
        first = None

        def __init__(self, uri):
            self.path = Path(uri.removeprefix("sqlite:///"))

        def search_experiments(self, max_results):
            self.path.write_text("made")
            if Client.first is not None:
                Client.first()

    monkeypatch.setattr("mlflow.MlflowClient", Client)
    return Client


def test_a_file_that_is_there_is_left_as_it_is(client, tmp_path):
    path = tmp_path / "mlflow.db"
    path.write_text("older")
    create_sqlite_store(path)
    path.unlink()
    client.first = lambda: path.write_text("of another process")
    create_sqlite_store(path)

    assert path.read_text() == "of another process"
    assert list(tmp_path.iterdir()) == [path]


def test_a_store_that_fails_on_the_way_leaves_nothing(client, tmp_path):
    def fail():
        raise OSError("No space left on device")

    client.first = fail
    with pytest.raises(OSError, match="No space"):
        create_sqlite_store(tmp_path / "mlflow.db")

    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_store_can_be_created_after_its_creator_was_killed(tmp_path):
    path = tmp_path / "mlflow.db"
    making = subprocess.Popen([sys.executable, "-c", OPEN, f"sqlite:///{path}"])
    deadline = time.monotonic() + 240
    while not any(file.stat().st_size > 100_000 for file in tmp_path.rglob("mlflow.db")):
        assert time.monotonic() < deadline
        assert making.poll() is None
        time.sleep(0.001)
    making.kill()
    making.wait()

    assert not path.exists()
    connect(f"sqlite:///{path}").create_experiment("after the kill")
    assert connect(f"sqlite:///{path}").get_experiment_by_name("after the kill") is not None
