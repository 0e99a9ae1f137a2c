"""The controller in virtual time: it waits for unknown results, and goes on where it stopped."""

import pytest
from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler
from ray.tune.search import ConcurrencyLimiter, Searcher

from tune_tf.tune_internals.virtual_controller import VirtualController, VirtualSearch


class Empties(Searcher):
    """Proposes empty configs."""

    def suggest(self, trial_id):
        return {}

    def on_trial_complete(self, trial_id, result=None, error=False):
        pass


class Results:
    """Results that are known once they are added: metrics by trial and iteration."""

    def __init__(self):
        self.known = {}

    def seconds(self, trial):
        return 1.0 if trial.trial_id.endswith("0") else 1.5

    def result(self, trial, iteration):
        return self.known.get((int(trial.trial_id), iteration))


@pytest.fixture
def results():
    return Results()


@pytest.fixture
def seen():
    """Trial, time and iteration of each processed result."""
    return []


@pytest.fixture
def controller(results, seen, tmp_path):
    def note(time_s, trial, result):
        seen.append((int(trial.trial_id), time_s, result.get("training_iteration")))
        return len(seen) < 4

    search = VirtualSearch(ConcurrencyLimiter(Empties("loss", "min"), 2), 2, 3, str(tmp_path))
    return VirtualController(results, search, FIFOScheduler(), num_workers=2, on_event=note)


def test_it_waits_for_the_result_that_is_due_though_later_ones_are_known(controller, results, seen):
    results.known = {(1, 1): {"loss": 1.0}, (0, 2): {"loss": 1.0}}
    controller.advance()
    assert seen == []
    first, second = controller.get_trials()
    assert controller.next_result(first) == (1, 1.0)
    assert controller.next_result(second) == (1, 1.5)


def test_it_goes_on_once_the_result_is_known(controller, results, seen):
    controller.advance()
    controller.advance()
    assert seen == []
    results.known = {(0, 1): {"loss": 1.0}, (1, 1): {"loss": 1.0}}
    controller.advance()
    assert seen == [(0, 1.0, 1), (1, 1.5, 1)]
    assert controller.next_result(controller.get_trials()[0]) == (2, 2.0)


def test_a_failure_ends_a_trial(controller, results, seen):
    results.known = {(0, 1): {}}
    controller.advance()
    first, second = controller.get_trials()
    assert (first.status, second.status) == (Trial.ERROR, Trial.RUNNING)
    assert list(controller.get_live_trials()) == [second]
    assert controller.next_result(first) is None
    assert seen == [(0, 1.0, None)]


def test_it_stops_where_its_caller_wants_no_more(controller, results, seen):
    results.known = {(trial, step): {"loss": 1.0} for trial in range(2) for step in range(1, 4)}
    controller.advance()
    assert [each[0] for each in seen] == [
        0,
        1,
        0,
        1,
    ]  # two are due at 3.0: first the one begun first


def test_a_run_that_may_end_is_told_from_one_that_waits(controller, results):
    assert not controller.run()
    results.known = {(trial, step): {} for trial in range(2) for step in range(1, 4)}
    assert controller.run()
