"""Ended trials are found without a walk over all, and Tune's state is saved less often if large."""

import itertools
import time
from types import SimpleNamespace

import pytest
from inline_actors import run_inline
from ray import tune
from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler

from tune_tf.tune_internals import controller as calls
from tune_tf.tune_internals.trial_state import EndedTrials

NUMBERS = itertools.count()


class CountedTrial:
    def __init__(self, status):
        self.status, self.num_asked, self.trial_id = status, 0, str(next(NUMBERS))

    def is_finished(self):
        self.num_asked += 1
        return self.status == Trial.TERMINATED


def trials_of(*statuses):
    return [CountedTrial(status) for status in statuses]


def test_each_trial_that_has_ended_is_found_once():
    trials = trials_of(Trial.TERMINATED, Trial.RUNNING, Trial.PENDING)
    ends = EndedTrials()
    assert ends.take(trials) == [trials[0]]
    assert ends.unfinished == trials[1:]
    assert ends.take(trials) == []
    trials[2].status = Trial.TERMINATED
    trials += trials_of(Trial.TERMINATED)
    assert ends.take(trials) == trials[2:]
    assert ends.unfinished == [trials[1]]


def test_a_trial_that_tune_retries_and_so_moves_to_the_end_changes_nothing():
    trials = trials_of(Trial.RUNNING, Trial.TERMINATED, Trial.RUNNING, Trial.TERMINATED)
    first, ends = trials[0], EndedTrials()
    assert len(ends.take(trials)) == 2
    (new,) = trials_of(Trial.PENDING)
    second = trials[2]
    trials[:] = [trials[1], trials[3], new, second, first]  # two are retried
    assert ends.take(trials) == []
    assert ends.unfinished == [first, second, new]
    first.status = Trial.TERMINATED
    assert ends.take(trials) == [first]


class Trials(tune.Callback):
    """Has Tune's state take 0.02 s to be saved, and looks at the period and the live trials."""

    def __init__(self):
        self.periods, self.active, self.found = [], [], []

    def setup(self, *args, **info):
        calls.limit_time_of_snapshots(0.05)

    def get_state(self):
        time.sleep(0.02)
        return {}

    def on_trial_result(self, trials, trial, **info):
        self.active.append(calls.num_active())
        self.found += [calls._find_trial(trial.trial_id) is trial for trial in trials]

    def on_step_end(self, **info):
        self.periods.append(calls.calling_controller()._checkpoint_manager._checkpoint_period)


@pytest.mark.usefixtures("inline")
def test_tune_saves_less_often_once_that_takes_too_long(tmp_path):
    def train(config):
        tune.report({"loss": 1.0})

    seen = Trials()
    run_inline(
        train,
        tmp_path,
        scheduler=FIFOScheduler(),
        callbacks=[seen],
        checkpoint_period=0.0,
        num_samples=3,
    )
    assert max(seen.periods) >= 0.02 * 19  # a twentieth of the time is for saving
    assert set(seen.active) <= {1, 2, 3}
    assert all(seen.found)


def test_without_tunes_private_parts_its_period_stays(monkeypatch):
    for manager in (None, SimpleNamespace(), SimpleNamespace(_checkpoint_period=2.0)):
        with calls.use_controller(SimpleNamespace(_checkpoint_manager=manager)):
            calls.limit_time_of_snapshots(0.05)
    assert vars(manager) == {"_checkpoint_period": 2.0}
