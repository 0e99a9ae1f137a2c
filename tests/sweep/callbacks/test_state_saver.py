import logging
from types import SimpleNamespace

import pytest

from tune_tf.errors import SweepConflictError
from tune_tf.sweep.callbacks.state_saver import StateSaver
from tune_tf.sweep.state.snapshots import SnapshotWriter, read_snapshot, snapshot_paths
from tune_tf.tune_internals.controller import use_controller

NAMES = ("experiment_state-{}.json", "search_gen_state-{}.json")
PICKLES = ("searcher-state-{}.pkl", "callback-states-{}.pkl")


@pytest.fixture
def staging(tmp_path):
    path = tmp_path / "staging"
    path.mkdir()
    return path


def write(staging, session, content):
    for name in (*NAMES, *PICKLES):
        (staging / name.format(session)).write_bytes(content)


def trials_in(staging, *ids):
    return [SimpleNamespace(local_experiment_path=str(staging), trial_id=each) for each in ids]


def test_each_state_that_tune_writes_is_kept(tmp_path, staging):
    keep = StateSaver(SnapshotWriter(tmp_path))
    write(staging, "1", b"first")
    keep.on_step_end(iteration=0, trials=trials_in(staging, "a"))
    keep.on_experiment_end(trials_in(staging, "a"))
    (path,) = snapshot_paths(tmp_path)
    assert set(read_snapshot(path).values()) == {b"first"}


def test_of_two_sessions_the_state_that_was_written_last_counts(tmp_path, staging):
    """As after a clock that was put back: the name of the later session sorts first."""
    write(staging, "2", b"before")
    write(staging, "1", b"after")
    keep = StateSaver(SnapshotWriter(tmp_path))
    keep.on_experiment_end(trials_in(staging, "a"))
    assert set(read_snapshot(snapshot_paths(tmp_path)[0]).values()) == {b"after"}


@pytest.mark.parametrize(("save_s", "period_s"), [(0.001, 2), (0.05, 4.95), (0.2, 10), (1, 19)])
def test_saving_takes_a_hundredth_of_the_time_or_a_twentieth_if_that_is_too_rare(
    tmp_path, monkeypatch, save_s, period_s
):
    monkeypatch.setenv("TUNE_GLOBAL_CHECKPOINT_S", "2")
    manager = SimpleNamespace(_checkpoint_period=2.0, _update_auto_checkpoint_time=None)
    with use_controller(SimpleNamespace(_checkpoint_manager=manager)):
        StateSaver(SnapshotWriter(tmp_path)).setup()
    manager._update_auto_checkpoint_time(save_s)
    assert manager._checkpoint_period == pytest.approx(period_s)


def test_a_sweep_that_tune_began_anew_ends_before_a_trial_starts(tmp_path, staging):
    keep = StateSaver(SnapshotWriter(tmp_path), {"a", "b"})
    with pytest.raises(SweepConflictError, match="not restore 1 trials"):
        keep.on_step_begin(iteration=0, trials=trials_in(staging, "a", "c"))


def test_the_reason_why_tune_begins_anew_is_raised_not_logged(tmp_path, caplog):
    keep = StateSaver(SnapshotWriter(tmp_path), {"a"})
    log = logging.getLogger("ray.tune.execution.tune_controller")

    def run():
        with keep.require_restore():
            try:
                raise KeyError("no such state")
            except KeyError:
                log.exception("Failed to restore the run state.")

    with pytest.raises(SweepConflictError, match=r"no such state.*Nothing was started"):
        run()
    assert not caplog.records


def test_a_failed_restore_raises_the_error_that_tune_only_logs(tmp_path):
    keep = StateSaver(SnapshotWriter(tmp_path), {"a"})
    log = logging.getLogger("ray.tune.execution.tune_controller")

    def run():
        with keep.require_restore():
            try:
                raise SweepConflictError("other rungs")
            except SweepConflictError:
                log.exception("Failed to restore the run state.")
            raise AssertionError("what Tune runs into afterwards")

    with pytest.raises(SweepConflictError, match=r"^other rungs$"):
        run()


def test_require_restore_lets_other_errors_pass(tmp_path):
    keep = StateSaver(SnapshotWriter(tmp_path), {"a"})

    def run():
        with keep.require_restore():
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        run()
