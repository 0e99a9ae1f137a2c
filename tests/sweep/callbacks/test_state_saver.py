from types import SimpleNamespace

import pytest

from tune_tf.errors import SweepConflictError
from tune_tf.sweep.callbacks.state_saver import StateSaver
from tune_tf.sweep.state.snapshots import SnapshotWriter
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
