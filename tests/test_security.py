"""What a sweep's files may do to whoever reads them, and who may read them."""

import ast
import os
import stat
from pathlib import Path
from unittest.mock import Mock

import pytest
import typer

from tune_tf.cli.options import allow_remote_ray, keep_ray_local
from tune_tf.cli.verbs import models
from tune_tf.config import SweepConfig
from tune_tf.errors import InvalidSettingsError
from tune_tf.inspection import SweepView
from tune_tf.sweep.model import retrain
from tune_tf.sweep_folder import SweepFolder

ROOT = Path(__file__).parents[1]
SETTINGS = {
    "name": "safe",
    "workload": "somewhere:Workload",
    "objective": {"metric": "loss", "mode": "min"},
    "space": {"lr": {"uniform": [0.0, 1.0]}},
    "budget": {"num_samples": 1},
}


@pytest.fixture
def create(tmp_path):
    def create(*, private=True, **settings):
        told = SETTINGS | {"storage_path": str(tmp_path / "sweeps")} | settings
        return SweepFolder.create(SweepConfig.from_dict(told), tmp_path, private=private)

    return create


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize(
    "tag", ["!!python/object/apply:os.system ['touch made']", "!!python/name:os.system"]
)
def test_a_sweep_file_makes_no_python_objects(tmp_path, monkeypatch, tag):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "sweep.yaml"
    path.write_text(f"name: {tag}\n")
    with pytest.raises(InvalidSettingsError, match="python"):
        SweepConfig.from_yaml(path)
    assert not (tmp_path / "made").exists()


def test_looking_at_a_sweep_runs_none_of_its_code(create):
    folder = create(workload="theirs.py:Theirs", data={"path": "a"})
    (folder.path / "theirs.py").write_text("open(__file__ + '.ran', 'w')\n")
    assert SweepView.open(folder.path).config.workload == "theirs.py:Theirs"
    assert not (folder.path / "theirs.py.ran").exists()


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077], ids=oct)
def test_only_the_user_can_look_into_a_sweep_whatever_the_umask(create, umask):
    before = os.umask(umask)
    try:
        assert mode_of(create().path) == 0o700
    finally:
        os.umask(before)


def test_a_sweep_whose_trials_another_user_runs_is_as_the_umask_says(create):
    before = os.umask(0o002)
    try:
        assert mode_of(create(private=False).path) == 0o775
    finally:
        os.umask(before)


@pytest.mark.parametrize("name", ["study.journal", "sqlite:///study.db"])
def test_a_study_outside_of_the_sweep_is_the_users_alone(tmp_path, monkeypatch, name):
    from tune_tf.searchers.study_storage import open_storage

    monkeypatch.chdir(tmp_path)
    open_storage(name)
    assert mode_of(tmp_path / name.removeprefix("sqlite:///")) == 0o600


def test_a_study_that_is_there_keeps_its_permissions(tmp_path):
    from tune_tf.searchers.study_storage import open_storage

    path = tmp_path / "study.journal"
    path.touch(mode=0o664)
    path.chmod(0o664)
    open_storage(str(path))
    assert mode_of(path) == 0o664


@pytest.mark.parametrize("name", ["../up", "a/b", "..", ".hidden", "a\nb", "/etc", "a\0b", "-rf"])
def test_the_name_of_a_sweep_leads_nowhere_else(name):
    with pytest.raises(InvalidSettingsError, match=r"name: must be letters, digits"):
        SweepConfig.from_dict(SETTINGS | {"name": name})


def test_what_data_call_a_secret_stays_in_the_folder(create):
    data = {"path": "a.csv", "api_token": "t0ken", "db": {"password": "pw"}, "key": "image"}
    folder = create(data=data | {"user_secret": "${SECRET}"})
    assert SweepFolder.open(folder.path).config.data["api_token"] == "t0ken"
    shown = folder.masked_file
    assert "t0ken" not in shown
    assert "password: '***'" in shown
    assert "key: image" in shown
    assert "${SECRET}" in shown


@pytest.mark.parametrize(("environ", "local"), [({}, True), ({"RAY_ADDRESS": "auto"}, False)])
def test_ray_keeps_to_this_machine_unless_a_cluster_is_named(environ, local):
    keep_ray_local(environ)
    assert ("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER" in environ) == local


def test_ray_is_not_limited_to_localhost_if_a_sweep_names_a_cluster():
    environ = {}
    keep_ray_local(environ)
    allow_remote_ray(environ, None)
    assert environ
    allow_remote_ray(environ, "auto")
    assert not environ


def test_retrain_reaches_the_cluster_of_its_sweep_and_can_be_interrupted(create, monkeypatch):
    monkeypatch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    monkeypatch.setattr(retrain, "final_config", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(typer.Exit) as told:
        models.retrain(str(create(cluster={"address": "auto"}).path))
    assert told.value.exit_code == 130
    assert "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER" not in os.environ


def test_what_the_environment_says_of_ray_stays():
    environ = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "1"}
    keep_ray_local(environ)
    assert environ == {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "1"}


# docs/security.md names what is read with each of these.
UNPICKLING = {
    "tune_tf/config/stored_workload.py",
    "tune_tf/data/node_store.py",
    "tune_tf/measure/child_process.py",
    "tune_tf/schedulers/state.py",
    "tune_tf/searchers/optuna_searcher.py",
    "tune_tf/trainables/trial_process.py",
    "tune_tf/training/callback_state.py",
}
_UNPICKLERS = {"Unpickler", "loads", "load", "load_model", "unsafe_load", "read_pickle"}
_MODULES = {"pickle", "cloudpickle", "joblib", "dill", "marshal", "shelve", "models", "yaml"}


def _unpickles(path):
    nodes = list(ast.walk(ast.parse(path.read_text())))
    called = {
        (node.value.id, node.attr)
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }
    allowed = (n.value for n in nodes if isinstance(n, ast.keyword) and n.arg == "allow_pickle")
    return any(module in _MODULES and name in _UNPICKLERS for module, name in called) or any(
        getattr(value, "value", True) for value in allowed
    )


def test_no_code_runs_by_reading_a_file_but_where_that_is_known():
    files = (ROOT / "tune_tf").rglob("*.py")
    assert {path.relative_to(ROOT).as_posix() for path in files if _unpickles(path)} == UNPICKLING
