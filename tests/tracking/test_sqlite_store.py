import subprocess
import sys
import time

import pytest

from tune_tf.tracking.store import connect, create_sqlite_store

pytestmark = pytest.mark.mlflow

OPEN = "import sys; from tune_tf.tracking.store import connect; connect(sys.argv[1])"


def test_a_file_that_is_there_is_left_as_it_is(tmp_path):
    path = tmp_path / "mlflow.db"
    path.write_text("of another process")
    create_sqlite_store(path)

    assert path.read_text() == "of another process"


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
