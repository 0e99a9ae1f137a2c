"""Sweeps on data that a sweep file describes: what is known before any trial starts."""

import own_data_files
import pytest

from tune_tf import SweepConfig, run_sweep
from tune_tf.errors import InvalidSettingsError, WorkloadError
from tune_tf.sweep import plan_sweep

SWEEP = {
    "name": "wine",
    "workload": "tune_tf.workloads.tabular:TabularMLP",
    "data": {"path": "wine.csv", "target": "class"},
    "objective": {"metric": "val_accuracy", "mode": "max"},
    "space": {"width": {"choice": [4, 8]}},
    "budget": {"num_samples": 2},
    "mlflow": None,
}


@pytest.fixture
def sweep(tmp_path):
    """Return the settings of a sweep with some changed."""
    return lambda **changes: SweepConfig.from_dict(
        {**SWEEP, "storage_path": str(tmp_path / "sweeps"), **changes}
    )


def test_a_missing_file_ends_a_sweep_before_it_has_a_folder(sweep, tmp_path):
    with pytest.raises(WorkloadError, match=f"data.path: {tmp_path}/wine.csv cannot be read"):
        run_sweep(sweep(), base_dir=tmp_path)
    assert not (tmp_path / "sweeps").exists()


def test_data_that_a_workload_needs_are_told_before_it_has_a_folder(sweep, tmp_path):
    with pytest.raises(InvalidSettingsError, match="data: is missing: TabularMLP needs settings"):
        run_sweep(sweep(data=None), base_dir=tmp_path)
    assert not (tmp_path / "sweeps").exists()


def test_the_trials_get_what_was_found_out_before(sweep, tmp_path):
    own_data_files.wine(tmp_path / "wine.csv")
    plan = plan_sweep(sweep(), base_dir=tmp_path)

    (tmp_path / "wine.csv").unlink()
    assert plan.workload.properties.classes == ("barbera", "barolo", "grignolino")
