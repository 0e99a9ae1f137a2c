"""How a sweep file names its workload."""

import subprocess
import sys
from pathlib import Path

import pytest

from tune_tf.config import import_workload
from tune_tf.errors import InvalidSettingsError, WorkloadError

WORKLOADS = """\
from dataclasses import dataclass
from tune_tf.workload import Workload

class Mine(Workload):
    def load_data(self, config): ...
    def build_model(self, config): ...

@dataclass
class Sized(Mine):
    size: int

class Placed(Mine):
    @classmethod
    def from_settings(cls, data, base_dir):
        made = cls()
        made.path = base_dir / data["path"]
        return made

sized = Sized(3)
other = 5
"""


@pytest.fixture
def workloads(tmp_path, monkeypatch):
    """Return a folder with a file of workloads."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "my_workloads.py").write_text(WORKLOADS)
    (tmp_path / "broken_one.py").write_text("import no_such_module_at_all\n")
    yield tmp_path
    sys.modules.pop("my_workloads", None)


@pytest.mark.parametrize(
    ("reference", "kind"),
    [
        pytest.param("my_workloads.py:Mine", "Mine", id="class-of-a-file"),
        pytest.param("my_workloads.py:sized", "Sized", id="instance-of-a-file"),
        pytest.param("my_workloads:Mine", "Mine", id="class-of-a-module"),
    ],
)
def test_a_workload_is_imported(reference, kind, workloads):
    assert type(import_workload(reference, workloads)).__name__ == kind


@pytest.mark.parametrize(
    ("reference", "match"),
    [
        pytest.param("nowhere.py:Mine", "there is no file /.*/nowhere.py", id="no-file"),
        pytest.param("nowhere.at:Mine", "there is no module 'nowhere'; looked in", id="no-module"),
        pytest.param("broken_one.py:A", "raised ModuleNotFoundError: .*at_all", id="broken-file"),
        pytest.param("broken_one:A", "importing broken_one raised Mod.*at_all", id="broken-module"),
        pytest.param(
            "my_workloads.py:Mime",
            r"has no 'Mime'; did you mean 'Mine'\?; its workloads are Mine, Placed, Sized, sized",
            id="no-attribute",
        ),
        pytest.param("my_workloads.py:Sized", r"Sized\(\) raised TypeError", id="arguments"),
        pytest.param("my_workloads.py:other", "other of .* is 5, which is not a", id="no-workload"),
    ],
)
def test_a_workload_that_cannot_be_imported_says_why(reference, match, workloads):
    with pytest.raises(WorkloadError, match=match):
        import_workload(reference, workloads)


def test_a_workload_of_a_file_is_pickled_whole(workloads):
    cloudpickle = pytest.importorskip("cloudpickle")
    data = cloudpickle.dumps(import_workload("my_workloads.py:sized", workloads))
    (workloads / "my_workloads.py").unlink()
    code = "import sys, pickle; print(pickle.load(sys.stdin.buffer).size)"
    found = subprocess.run(
        [sys.executable, "-c", code], input=data, capture_output=True, check=True
    )
    assert found.stdout.strip() == b"3"


def test_a_class_is_made_with_the_data_of_the_file(workloads):
    made = import_workload("my_workloads.py:Sized", workloads, {"size": 4})
    assert made.size == 4


def test_a_class_may_look_at_paths_from_the_folder_of_the_file(workloads):
    made = import_workload("my_workloads.py:Placed", workloads, {"path": "wine.csv"})
    assert made.path == workloads / "wine.csv"


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        pytest.param(
            "Sized",
            {"sise": 3},
            ["data.size: is missing", "data.sise: unknown key; did you mean 'size'?; known"],
            id="keys",
        ),
        pytest.param(
            "Mine", {"size": 3}, ["data: is given, but Mine takes no settings"], id="takes-none"
        ),
        pytest.param(
            "sized",
            {"size": 3},
            ["data: is given, but sized is already an instance"],
            id="instance",
        ),
    ],
)
def test_data_that_a_workload_does_not_take_are_faults_of_the_settings(
    name, data, expected, workloads
):
    with pytest.raises(InvalidSettingsError, match="data") as caught:
        import_workload(f"my_workloads.py:{name}", workloads, data)
    found = [str(error) for error in caught.value.details]
    assert len(found) == len(expected)
    assert all(text.startswith(start) for text, start in zip(found, expected, strict=True))


def test_data_that_are_needed_and_missing_are_one_fault():
    with pytest.raises(
        InvalidSettingsError, match=r"^data: is missing: TabularMLP .* target: is missing: name the"
    ):
        import_workload("tune_tf.workloads.tabular:TabularMLP", Path.cwd())
