import pytest

from tune_tf.config import SweepConfig
from tune_tf.errors import InvalidSettingsError, SweepConflictError
from tune_tf.sweep.config_diff import changes_between, check_changes
from tune_tf.sweep.run import extend_sweep
from tune_tf.sweep_folder import SweepFolder

SETTINGS = {
    "name": "small",
    "workload": "models:Mine",
    "objective": {"metric": "loss", "mode": "min"},
    "space": {"width": {"int": [8, 128]}},
    "epochs": 9,
    "scheduler": {"name": "asha"},
    "resources": {"cpus": 1},
    "budget": {"num_samples": 8},
}


def changed(**settings):
    old = SweepConfig.from_dict(SETTINGS)
    new = SweepConfig.from_dict(SETTINGS | settings)
    return changes_between(old, new), new


def check(changes, new, *, allowed=True):
    check_changes("small-1", changes, new, allowed=allowed)


CHANGEABLE = {
    "number of trials": {"budget": {"num_samples": 20}},
    "time": {"budget": {"num_samples": 8, "time_budget_s": 60}},
    "devices": {"resources": {"cpus": 2}},
    "where the workload is": {"workload": "elsewhere.models:Mine"},
    "data": {"data": {"path": "there.csv"}},
    "retries": {"max_failures": 3, "oom_retries": 0},
    "trials at a time": {"max_concurrent_trials": 1},
    "final model": {"mlflow": {"log_best_model": False}},
}
FIXED = {
    "name": {"name": "other"},
    "objective": {"objective": {"metric": "loss", "mode": "max"}},
    "sampler": {"searcher": {"sampler": "random"}},
    "rungs": {"scheduler": {"name": "asha", "grace_period": 2}},
    "epochs": {"epochs": 27},
    "seed": {"seed": 4},
    "loop": {"loop": "fit"},
    "store": {"mlflow": {"tracking_uri": "sqlite:///other.db"}},
    "tracking": {"mlflow": None},
    "storage": {"storage_path": "elsewhere"},
}


@pytest.mark.parametrize("settings", CHANGEABLE.values(), ids=CHANGEABLE.keys())
def test_what_a_resume_reads_anew_can_be_changed(settings):
    changes, new = changed(**settings)
    assert changes
    check(changes, new)


@pytest.mark.parametrize("settings", FIXED.values(), ids=FIXED.keys())
def test_what_the_sweep_s_state_is_made_of_cannot_be_changed(settings):
    with pytest.raises(SweepConflictError, match=r"\(fixed\)[\s\S]*start another sweep$"):
        check(*changed(**settings))


def test_a_changed_space_is_refused_with_what_takes_the_trials_to_another_sweep():
    with pytest.raises(SweepConflictError, match=r"start another sweep with searcher\.warm_start"):
        check(*changed(space={"width": {"int": [8, 64]}}))


@pytest.mark.parametrize(
    "settings",
    [
        {"budget": {"num_samples": 20}},
        {"slots": 4},
    ],
    ids=["number of trials", "trials at once"],
)
def test_what_the_decisions_of_a_reproducible_sweep_follow_from_cannot_be_changed(settings):
    old = SweepConfig.from_dict(SETTINGS | {"reproducible": True})
    new = SweepConfig.from_dict(SETTINGS | {"reproducible": True} | settings)
    with pytest.raises(SweepConflictError, match="fixed"):
        check(changes_between(old, new), new)


def test_a_reproducible_sweep_cannot_be_extended(tmp_path):
    settings = SETTINGS | {"reproducible": True, "storage_path": str(tmp_path)}
    folder = SweepFolder.create(SweepConfig.from_dict(settings), tmp_path)
    with pytest.raises(InvalidSettingsError, match="reproducible sweep cannot be extended"):
        extend_sweep(folder.path, {"num_samples": "+4"})


def test_changes_that_were_not_allowed_are_shown_all_with_what_to_do():
    told = r"budget.num_samples: 8 -> 20\n  max_failures: 0 -> 3\n.*--allow-changes"
    with pytest.raises(SweepConflictError, match=told):
        check(*changed(budget={"num_samples": 20}, max_failures=3), allowed=False)


@pytest.fixture
def folder(tmp_path):
    settings = SETTINGS | {"storage_path": str(tmp_path)}
    return SweepFolder.create(SweepConfig.from_dict(settings), tmp_path)


def edit(folder, old, new):
    file = folder.path / "sweep.yaml"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))


def test_an_edit_is_found_and_the_sweep_keeps_its_settings(folder):
    edit(folder, "num_samples: 8", "num_samples: 20")
    opened = SweepFolder.open(folder.path)
    assert opened.config.budget.num_samples == 8
    assert opened.edited().budget.num_samples == 20


def test_a_sweep_file_that_was_removed_is_written_anew(folder, caplog):
    file = folder.path / "sweep.yaml"
    whole = file.read_text()
    file.unlink()
    assert SweepFolder.open(folder.path).edited() is None
    assert file.read_text() == whole
    assert "is missing" in caplog.text
