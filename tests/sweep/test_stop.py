"""Requests to stop trials of a sweep that another process runs."""

import pytest

from tune_tf.errors import SweepConflictError
from tune_tf.sweep import stop


def test_a_trial_that_never_starts_as_the_sweep_ends_is_not_said_to_be_stopped(sweep, monkeypatch):
    (sweep.path / "trial_00000").mkdir()  # Tune makes it before the trial starts
    monkeypatch.setattr(stop.time, "sleep", lambda seconds: sweep.finish(interrupted=True))

    with pytest.raises(SweepConflictError, match="it is interrupted"):
        stop.stop_trials(sweep.path, ["0"])
