"""Every ready sweep file runs: each parallelism, early stopping, tracked by MLflow.

``digits_cnn`` is the main job, which CI runs as a user does before the tests.
"""

import shutil
from pathlib import Path

import own_data_files
import pytest
from record_and_mlflow import assert_truth

from tune_tf import SweepConfig, run_sweep
from tune_tf.parallelism import PARALLELISM_KINDS

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "search_spaces"
OWN_DATA = {
    "tabular": ("tabular", own_data_files.wine, "wines.parquet", ()),
    "image_folder": (
        "image_folder",
        own_data_files.digit_folders,
        "digits",
        ("data.image_size=8", "data.channels=1", "data.flip=false"),
    ),
    "arrays": ("arrays", own_data_files.digit_arrays, "digits.npz", ()),
}
"""Ready file, what makes data for it, their path, and what else has to be set."""

OWN = {name for name, *_ in OWN_DATA.values()}
FILES = sorted(path for path in FOLDER.glob("*.yaml") if path.stem not in OWN)
SHORT = (
    "budget.num_samples=2",
    "epochs=2",
    "max_concurrent_trials=1",
    "mlflow.log_best_model=false",
)


@pytest.fixture
def here(tmp_path, monkeypatch, empty_store):
    """A folder to run a sweep in."""
    shutil.copy(empty_store, tmp_path / "mlflow.db")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("ray_cluster", "here")
@pytest.mark.parametrize(
    "path", [path for path in FILES if path.stem != "digits_cnn"], ids=lambda path: path.stem
)
def test_a_ready_sweep_runs_and_each_trial_ends_alike_in_record_and_mlflow(path):
    config = SweepConfig.from_yaml(path, SHORT)

    result = run_sweep(config)

    is_auto = "{name: auto}" in path.read_text()
    assert config.scheduler.name == ("freeze_thaw" if is_auto else "asha")
    trials = assert_truth(result.path)
    assert len(trials) == 2
    assert "completed" in {trial.reason for trial in trials.values()}
    assert 0 < result.best_value <= 1


@pytest.mark.tf
@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize(("name", "make", "place", "more"), OWN_DATA.values(), ids=OWN_DATA)
def test_a_ready_sweep_runs_on_files_of_ones_own(name, make, place, more, here):
    make(here / "mine" / place)
    overrides = (*SHORT, f"data.path=mine/{place}", *more)

    result = run_sweep(SweepConfig.from_yaml(FOLDER / f"{name}.yaml", overrides))

    trials = assert_truth(result.path)
    assert len(trials) == 2
    assert "completed" in {trial.reason for trial in trials.values()}
    assert 0 < result.best_value <= 1
    assert result.export_model(here / "best.keras").is_file()


def test_there_is_a_ready_sweep_for_each_parallelism():
    kinds = {SweepConfig.from_yaml(path).parallelism.kind for path in FILES}

    assert kinds == {each.kind for each in PARALLELISM_KINDS}
