"""Requests to stop trials of a sweep that another process runs."""

import pytest

from tune_tf.errors import SweepConflictError, UnknownTrialError
from tune_tf.sweep import stop


def test_a_trial_that_never_starts_as_the_sweep_ends_is_not_said_to_be_stopped(sweep, monkeypatch):
    sweep.create(0)
    monkeypatch.setattr(stop.time, "sleep", lambda seconds: sweep.finish(interrupted=True))

    with pytest.raises(SweepConflictError, match="it is interrupted"):
        stop.stop_trials(sweep.path, ["0"])


def test_a_trial_that_does_not_exist_is_refused(sweep):
    with pytest.raises(UnknownTrialError, match="none has started"):
        stop.stop_trials(sweep.path, ["0"])
