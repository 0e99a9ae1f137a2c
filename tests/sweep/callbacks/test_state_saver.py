"""A resume that Tune does not take up ends before a trial starts."""

from types import SimpleNamespace

import pytest

from tune_tf.errors import SweepConflictError
from tune_tf.sweep.callbacks.state_saver import StateSaver
from tune_tf.sweep.state.snapshots import SnapshotWriter


def test_a_sweep_that_tune_began_anew_ends_before_a_trial_starts(tmp_path):
    keep = StateSaver(SnapshotWriter(tmp_path), {"a", "b"})
    trials = [SimpleNamespace(trial_id=each) for each in ("a", "c")]
    with pytest.raises(SweepConflictError, match="not restore 1 trials"):
        keep.on_step_begin(iteration=0, trials=trials)
