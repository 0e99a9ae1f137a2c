"""The search generator of a reproducible sweep, which follows the scheduler."""

from types import SimpleNamespace

import pytest

from tune_tf import Objective
from tune_tf.config import BudgetSettings
from tune_tf.searchers import OptunaSearcher
from tune_tf.space import Float, SearchSpace
from tune_tf.sweep.runner import SweepSearch


@pytest.fixture
def proposer():
    return SimpleNamespace(may_create=False, has_all_trials=False)


@pytest.fixture
def search(proposer):
    searcher = OptunaSearcher(SearchSpace({"rate": Float(0, 1)}), Objective("loss", "min"))
    guard = SimpleNamespace(may_start=lambda: True, interrupted=False)
    return SweepSearch(searcher, BudgetSettings(num_samples=1), 1, guard, proposer)


def test_no_trial_is_created_before_it_is_its_turn(search):
    assert search.next_trial() is None


def test_search_is_not_finished_while_paused_trials_may_go_on(search, proposer):
    search.set_state({**search.get_state(), "counter": 1})  # all are created
    assert not search.is_finished()
    proposer.has_all_trials = True
    assert search.is_finished()


def test_search_is_finished_when_tune_ends_it(search):
    search.set_finished()
    assert search.is_finished()
