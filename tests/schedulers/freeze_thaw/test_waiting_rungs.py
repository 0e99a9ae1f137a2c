"""Rungs, and how far trials came."""

import pytest

from tune_tf.schedulers.rungs import Rungs, rung_iterations


@pytest.mark.parametrize(
    ("given", "iterations"),
    [
        ((1, 3, 27), (1, 3, 9, 27)),
        ((1, 3, 100), (1, 3, 9, 27, 81, 100)),
        ((2, 4, 32), (2, 8, 32)),
        ((1, 1.5, 6), (1, 2, 3, 4, 6)),
        ((5, 3, 5), (5,)),
        ((100, 1.1, 130), (100, 110, 121, 130)),  # 100 * 1.1 is a little above 110
    ],
)
def test_rungs_stand_at_powers_of_the_factor_and_at_the_limit(given, iterations):
    assert rung_iterations(*given) == iterations


def test_a_trial_waits_from_a_rung_on_until_it_leaves_it():
    rungs = Rungs((2, 4, 8))
    waits = []
    for iteration in range(1, 6):
        rungs.report("a", iteration)
        waits.append((rungs.holds_at("a", iteration), rungs.holds("a"), rungs.height("a")))
        if iteration == 2:
            rungs.leave("a")
    at_second = (True, True, 2)
    assert waits == [(False, False, 0), (True, True, 1), (False, False, 1), at_second, at_second]
    assert not rungs.holds("unknown")


def test_a_retry_does_not_wait_where_it_was_let_go():
    rungs = Rungs((1, 3, 9))
    for iteration in (1, 3):
        rungs.report("a", iteration)
        rungs.leave("a")
    assert [rungs.holds_at("a", iteration) for iteration in (1, 2, 3, 4, 9)] == [False] * 4 + [True]


def test_a_text_counts_the_trials_at_each_rung():
    rungs = Rungs((1, 3, 9))
    for name, iteration in {"a": 1, "b": 3, "c": 2}.items():
        rungs.report(name, iteration)
    assert str(rungs) == "9: 0, 3: 1, 1: 2"
