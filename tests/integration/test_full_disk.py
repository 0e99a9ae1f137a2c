"""A sweep whose driver finds no room on the disk any more."""

import resource

import pytest
from record_and_mlflow import assert_truth
from terminal import until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


def test_a_sweep_that_ran_out_of_disk_goes_on_once_there_is_room(
    command, finished, sweep_file, tmp_path
):
    settings = ("scheduler={name: fifo}", "epochs=20", "checkpoint_interval_s=0")
    process = command("run", str(sweep_file), *settings, cwd=tmp_path)
    until(lambda: [*tmp_path.glob("sweeps/*/trial_*/checkpoint_*/trial.npz")], process=process)
    hard = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)[1]
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (4_000, hard))  # as a quota does
    _, err = process.communicate(timeout=240)

    assert process.returncode == 1, err
    assert "free some space, then resume the sweep: tune-tf resume" in err
    assert "Traceback" not in err.rpartition("error: ")[2]
    code, _, err = finished("resume", "tiny", "--json", cwd=tmp_path, timeout_s=480)

    assert code == 0, err
    assert len(assert_truth(next((tmp_path / "sweeps").iterdir()))) == 4
