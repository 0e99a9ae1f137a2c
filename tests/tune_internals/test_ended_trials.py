"""Ended trials are found without a walk over all."""

import itertools

from ray.tune.experiment import Trial

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
