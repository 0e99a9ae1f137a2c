"""Workloads given as objects, and their file in the folder of a sweep."""

import importlib
import pickle
import shutil
import subprocess
import sys
import threading

import pytest
from ray import cloudpickle

from tune_tf.config import SweepConfig, import_workload
from tune_tf.config.stored_workload import STORED_FILE, read_workload
from tune_tf.errors import InvalidSettingsError, WorkloadError
from tune_tf.sweep_folder import SweepFolder
from tune_tf.workload import Workload


class Sized(Workload):
    def __init__(self, size=3):
        self.size = size

    def load_data(self, config):
        return self.size

    def build_model(self, config):
        return None


def config_of(workload, **settings):
    return SweepConfig(
        **{
            "name": "mine",
            "workload": workload,
            "objective": {"metric": "val_loss", "mode": "min"},
            "space": {"width": 8},
            "budget": {"num_samples": 1},
            **settings,
        }
    )


@pytest.mark.parametrize("workload", [Sized, Sized(3)], ids=["class", "instance"])
def test_settings_name_a_stored_workload_as_text(workload):
    config = config_of(workload)
    assert config.workload == "workload.pickle:Sized"
    assert type(config.to_dict()["workload"]) is str
    assert SweepConfig.from_dict(config.to_dict()) == config
    for module in (pickle, cloudpickle):
        assert isinstance(module.loads(module.dumps(config)).workload.workload, type(workload))


@pytest.mark.parametrize("workload", [object, Workload, 3, None, lambda config: None])
def test_other_objects_are_refused(workload):
    with pytest.raises(InvalidSettingsError, match="must be module:attribute"):
        config_of(workload)


def test_an_instance_is_copied_so_that_checks_of_one_sweep_leave_it_as_it_is(tmp_path):
    mine = Sized(4)
    import_workload(config_of(mine).workload, tmp_path).size = 5
    assert mine.size == 4


def test_a_class_gets_the_settings_of_data_also_from_a_moved_folder(tmp_path):
    config = config_of(Sized, data={"size": 7}, storage_path=tmp_path / "a")
    shutil.move(SweepFolder.create(config, tmp_path).path, tmp_path / "elsewhere")
    opened = SweepFolder.open(tmp_path / "elsewhere")
    assert opened.edited() is None
    workload = import_workload(opened.config.workload, opened.base_dir, opened.config.data)
    assert workload.size == 7


def test_code_of_a_users_module_is_stored_with_its_helpers(tmp_path, monkeypatch):
    (tmp_path / "my_helpers.py").write_text("def twice(x):\n    return 2 * x\n")
    (tmp_path / "my_models.py").write_text(
        "from tune_tf import Workload\n"
        "import my_helpers\n"
        "from my_helpers import twice\n"
        "def plus(x):\n    return my_helpers.twice(twice(x)) + 1\n"
        "class Mine(Workload):\n"
        "    def load_data(self, config):\n        return plus(config['n'])\n"
        "    def build_model(self, config):\n        return None\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    mine = importlib.import_module("my_models").Mine
    folder = SweepFolder.create(config_of(mine, storage_path=tmp_path / "sweeps"), tmp_path)
    code = (
        "from pathlib import Path; from tune_tf.config.stored_workload import read_workload; "
        f"print(read_workload(Path({str(folder.path)!r}))().load_data({{'n': 2}}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd="/")
    assert done.stdout == "9\n", done.stderr


def test_a_missing_or_damaged_file_is_named(tmp_path):
    folder = SweepFolder.create(config_of(Sized, storage_path=tmp_path), tmp_path)
    file = folder.path / STORED_FILE
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(WorkloadError, match=rf"{STORED_FILE}, which holds the workload, cannot"):
        read_workload(folder.path)
    file.unlink()
    with pytest.raises(WorkloadError, match=f"{STORED_FILE} is missing: .*start the sweep again"):
        read_workload(folder.path)


def test_what_cannot_be_pickled_is_refused_with_what_to_do(tmp_path):
    mine = Sized()
    mine.lock = threading.Lock()
    with pytest.raises(WorkloadError, match="create open files, locks and datasets in load_data"):
        SweepFolder.create(config_of(mine, storage_path=tmp_path), tmp_path)
    assert not list(tmp_path.iterdir())
