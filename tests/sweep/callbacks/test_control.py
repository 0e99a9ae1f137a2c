"""What is asked of a running sweep, and how it heeds it."""

import pytest

from tune_tf.errors import SweepConflictError
from tune_tf.events import ControlChannel
from tune_tf.outcome import Outcome
from tune_tf.sweep import stop_sweep, stop_trials


@pytest.fixture
def heeding():
    """Return a driver that heeds what is asked of a sweep, and what came of it."""
    from tune_tf.sweep.stopper import RequestReader, SweepStopper

    def heeding(folder):
        now = iter(range(0, 1000, 10))
        told = []
        end = SweepStopper("small")
        RequestReader(
            ControlChannel(folder), end, lambda: told.append("interrupted"), lambda: next(now)
        )
        return lambda: (end.stop_all(), end, told)[1:]

    return heeding


@pytest.mark.parametrize(
    ("end", "reason", "interrupted"),
    [(False, None, ["interrupted"]), (True, "it was ended by hand", [])],
    ids=["for now", "for good"],
)
def test_a_sweep_is_stopped(sweep, heeding, end, reason, interrupted):
    stop_sweep(sweep.path, end=end, wait=False)
    found, told = heeding(sweep.path)()
    assert (found.reason, told) == (reason, interrupted)


def test_a_trial_is_stopped_with_its_next_result(sweep, heeding):
    sweep.start(0)
    sweep.start(1)
    stop_trials(sweep.path, ["1"], wait=False)
    end, _ = heeding(sweep.path)()
    assert end("a8f1e000", {"val_accuracy": 0.5})
    assert end.trial_end("a8f1e000") == (Outcome.PRUNED, "stopped by hand")
    assert not end("a8624273", {"val_accuracy": 0.5})
    assert not end.stop_all()


def test_a_trial_that_is_just_starting_is_waited_for(sweep, heeding, monkeypatch):
    (sweep.path / "trial_00001").mkdir()  # its process has not started yet
    monkeypatch.setattr("tune_tf.sweep.stop.time.sleep", lambda seconds: sweep.start(1))
    stop_trials(sweep.path, ["1"], wait=False)
    end, _ = heeding(sweep.path)()
    assert end("a8f1e000", {"val_accuracy": 0.5})


def test_a_trial_that_has_ended_cannot_be_stopped(sweep):
    sweep.run(0, 0.5)
    sweep.start(1)
    with pytest.raises(
        SweepConflictError, match=r"trial 0 \(completed\) of small-.* already ended"
    ):
        stop_trials(sweep.path, ["1", "0"])
    assert list(ControlChannel(sweep.path).take()) == []
