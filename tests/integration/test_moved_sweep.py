"""A killed sweep whose folder was copied, or moved, goes on where it is now."""

import shutil

import pytest
from terminal import kill, until

from tune_tf.inspection import SweepView
from tune_tf.record import SweepHistory, recorded_results

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

NUM_EPOCHS = 200


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def add_stray_things(folder):
    """Add what looks like a trial's or a checkpoint, but is none that the record has."""
    for name in ("trial_abc", "trial_00099/checkpoint_000000", "trial_00001/checkpoint_x"):
        (folder / name).mkdir(parents=True)
    for name in ("checkpoint_000000", "trial_00088", "trial_00001/checkpoint_000999"):
        (folder / name).write_text("a file")


SCHEDULERS = {
    "fifo": ("scheduler={name: fifo}",),
    "pbt": (
        "scheduler={name: pbt, perturbation_interval: 20, quantile_fraction: 0.5}",
        "max_concurrent_trials=4",
    ),
}


@pytest.mark.parametrize("settings", SCHEDULERS.values(), ids=SCHEDULERS)
def test_a_killed_sweep_goes_on_where_its_folder_was_copied_or_moved_to(
    settings, untrained, sweep_file, tmp_path
):
    more = (*settings, f"epochs={NUM_EPOCHS}")
    process = untrained("run", str(sweep_file), *more, cwd=tmp_path)
    try:
        until(lambda: [*tmp_path.glob("sweeps/*/trial_00001/checkpoint_000003")], process=process)
    finally:
        kill(process)
    (folder,) = (tmp_path / "sweeps").iterdir()
    before = {it.number: recorded_results(folder, it.number) for it in trials_of(folder)}
    elsewhere = tmp_path / "elsewhere"
    copied = shutil.copytree(folder, elsewhere / "copied" / folder.name)
    whole = contents(folder)
    add_stray_things(copied)

    assert_it_goes_on(untrained, copied, before, elsewhere)
    assert contents(folder) == whole

    moved = elsewhere / "moved" / folder.name
    moved.parent.mkdir()
    folder.rename(moved)
    assert_it_goes_on(untrained, moved, before, elsewhere)
    assert not folder.exists()
    assert not list(elsewhere.glob("*.db"))  # a relative address is of where the sweep began


def trials_of(folder):
    return SweepHistory.read(folder).trials.values()


def assert_it_goes_on(untrained, folder, before, cwd):
    process = untrained("resume", str(folder), cwd=cwd)
    _, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    assert "Traceback" not in err
    view = SweepView.open(folder)
    exploits = {trial.number: trial.exploits for trial in trials_of(folder)}
    assert [trial.number for trial in view.trials] == [0, 1, 2, 3]
    for trial in view.trials:
        results = recorded_results(folder, trial.number)
        epochs = [each["training_iteration"] for each in results]
        known = before.get(trial.number, [])
        assert results[: len(known)] == known
        assert epochs[-1] == NUM_EPOCHS
        if not exploits[trial.number]:
            assert set(epochs) == set(range(1, NUM_EPOCHS + 1))
            assert len(epochs) <= NUM_EPOCHS + 30  # it did not start over
        assert trial.checkpoints
        assert all(path.is_relative_to(folder) for path in trial.checkpoints)
