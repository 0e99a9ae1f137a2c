"""Where a sweep may be stored."""

import pytest

from tune_tf.config import SweepConfig
from tune_tf.errors import InvalidSettingsError
from tune_tf.sweep.storage import check_storage


def test_only_a_new_sweep_needs_a_storage_path_that_can_hold_it(tmp_path):
    (tmp_path / "file").touch()
    config = SweepConfig(
        name="moved",
        workload="models:Mine",
        objective={"metric": "loss", "mode": "min"},
        space={"width": 8},
        budget={"num_samples": 1},
        storage_path=tmp_path / "file" / "sweeps",
    )
    with pytest.raises(InvalidSettingsError, match="file is not a folder; name another folder"):
        check_storage(config)
    check_storage(config, tmp_path)  # its folder was moved
