"""Workload of a function, as `tune_tf.search` makes it."""

import re
from pathlib import Path

import pytest

from tune_tf.errors import WorkloadError
from tune_tf.workloads.function_workload import FunctionWorkload


def read(config):
    return Path(config["path"]).read_text()


@pytest.fixture
def workload(tmp_path, monkeypatch):
    """A workload made in a folder with a file, but run in another one."""
    (tmp_path / "rows.csv").write_text("rows")
    monkeypatch.chdir(tmp_path)
    made = FunctionWorkload(read, read)
    (tmp_path / "trial").mkdir()
    monkeypatch.chdir(tmp_path / "trial")
    return made


@pytest.mark.parametrize("method", ["load_data", "build_model"])
def test_a_relative_path_of_the_script_is_refused_with_the_path_to_write(
    workload, method, tmp_path
):
    call = getattr(workload, method)
    with pytest.raises(WorkloadError, match=re.escape(f"path, '{tmp_path}/rows.csv'")):
        call({"path": "rows.csv"})
    assert call({"path": str(tmp_path / "rows.csv")}) == "rows"


@pytest.mark.parametrize("path", ["nowhere.csv", "/nowhere.csv"])
def test_a_file_that_is_nowhere_is_told_as_python_tells_it(workload, path):
    with pytest.raises(FileNotFoundError, match=r"nowhere\.csv"):
        workload.load_data({"path": path})
