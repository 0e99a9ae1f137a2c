"""Rungs, and how far trials came."""

import pytest

from tune_tf.schedulers.rungs import Rungs, rung_iterations


def anyone(_trial_id):
    return True


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
        rungs.report("a", iteration, 0.1)
        waits.append((rungs.holds_at("a", iteration), rungs.holds("a"), rungs.height("a")))
        if iteration == 2:
            rungs.leave("a")
    at_second = (True, True, 2)
    assert waits == [(False, False, 0), (True, True, 1), (False, False, 1), at_second, at_second]
    assert not rungs.holds("unknown")


def test_a_retry_does_not_wait_where_it_was_let_go():
    rungs = Rungs((1, 3, 9))
    for iteration in (1, 3):
        rungs.report("a", iteration, 0.1)
        rungs.leave("a")
    assert [rungs.holds_at("a", iteration) for iteration in (1, 2, 3, 4, 9)] == [False] * 4 + [True]


def test_the_worst_of_the_lowest_rung_is_the_last_one_held_and_of_equals_the_latest():
    rungs = Rungs((1, 3, 9))
    for name, loss in {"a": 0.1, "b": 0.3, "c": 0.2, "d": 0.3}.items():
        rungs.report(name, 1, loss)
    rungs.report("b", 1, 0.0)  # one that comes again keeps its first loss
    assert rungs.worst_waiting(anyone) == "d"
    rungs.leave("d")
    assert rungs.worst_waiting(anyone) == "b"
    rungs.leave("b")
    rungs.report("b", 3, 9.0)
    assert rungs.worst_waiting(anyone) == "c"
    assert rungs.worst_waiting(lambda name: name == "b") == "b"
    assert rungs.worst_waiting(lambda name: name == "d") is None
    assert str(rungs) == "9: 0, 3: 1, 1: 3"
