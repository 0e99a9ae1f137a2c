"""How a sweep file names its workload."""

import subprocess
import sys

import pytest
from ray import cloudpickle

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

def __getattr__(name):
    if name == "Late":
        return Mine
    raise AttributeError(name)
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
        ("my_workloads.py:Mine", "Mine"),
        ("my_workloads.py:sized", "Sized"),
        ("my_workloads:Mine", "Mine"),
        ("my_workloads:Late", "Mine"),
    ],
)
def test_a_workload_is_imported(reference, kind, workloads):
    assert type(import_workload(reference, workloads)).__name__ == kind


@pytest.mark.parametrize(
    ("reference", "match"),
    [
        ("nowhere.py:Mine", "there is no file /.*/nowhere.py"),
        ("nowhere.at:Mine", "there is no module 'nowhere'; looked in"),
        ("broken_one.py:A", "raised ModuleNotFoundError: .*at_all"),
        ("broken_one:A", "importing broken_one raised Mod.*at_all"),
        (
            "my_workloads.py:Mime",
            r"has no 'Mime'; did you mean 'Mine'\?; its workloads are Mine, Placed, Sized, sized",
        ),
        ("my_workloads.py:Sized", r"Sized\(\) raised TypeError"),
        ("my_workloads.py:other", "other of .* is 5, which is not a"),
    ],
)
def test_a_workload_that_cannot_be_imported_says_why(reference, match, workloads):
    with pytest.raises(WorkloadError, match=match):
        import_workload(reference, workloads)


def test_a_workload_of_a_file_is_pickled_whole(workloads):
    data = cloudpickle.dumps(import_workload("my_workloads.py:sized", workloads))
    (workloads / "my_workloads.py").unlink()
    code = "import sys, pickle; print(pickle.load(sys.stdin.buffer).size)"
    found = subprocess.run(
        [sys.executable, "-c", code], input=data, capture_output=True, check=True
    )
    assert found.stdout.strip() == b"3"


def test_a_class_is_made_with_the_data_of_the_file_and_its_folder(workloads):
    assert import_workload("my_workloads.py:Sized", workloads, {"size": 4}).size == 4
    placed = import_workload("my_workloads.py:Placed", workloads, {"path": "wine.csv"})
    assert placed.path == workloads / "wine.csv"


@pytest.mark.parametrize(
    ("reference", "data", "expected"),
    [
        (
            "my_workloads.py:Sized",
            {"sise": 3},
            ["data: must fit Sized(size: int) -> None: missing a required argument: 'size'"],
        ),
        ("my_workloads.py:Mine", {"size": 3}, ["data: must fit Mine(): got an unexpected"]),
        (
            "my_workloads.py:sized",
            {"size": 3},
            ["data: is given, but sized is already an instance"],
        ),
        (
            "tune_tf.workloads.tabular:TabularMLP",
            None,
            ["data: is missing: TabularMLP needs setti"],
        ),
    ],
)
def test_data_that_a_workload_does_not_take_are_errors_of_the_settings(
    reference, data, expected, workloads
):
    with pytest.raises(InvalidSettingsError, match="data") as caught:
        import_workload(reference, workloads, data)
    found = [str(error) for error in caught.value.details]
    assert len(found) == len(expected)
    assert all(text.startswith(start) for text, start in zip(found, expected, strict=True))
