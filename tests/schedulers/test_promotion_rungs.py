"""Promotion decisions of successive halving."""

import pytest

from tune_tf.schedulers.rungs import PromotionRungs, Rung, rung_iterations


def anyone(_trial_id):
    return True


def climbed(losses, factor=3, iterations=(1, 3, 9)):
    """Return a ladder to whose first rung trials 0, 1, ... came with these losses."""
    rungs = PromotionRungs(iterations, factor)
    for number, loss in enumerate(losses):
        rungs.report(str(number), iterations[0], loss)
    return rungs


@pytest.mark.parametrize(
    ("given", "iterations"),
    [
        ((1, 3, 27), (1, 3, 9, 27)),
        ((1, 3, 100), (1, 3, 9, 27, 81, 100)),
        ((1, 3, 243), (1, 3, 9, 27, 81, 243)),
        ((2, 4, 32), (2, 8, 32)),
        ((1, 1.5, 6), (1, 2, 3, 4, 6)),
        ((5, 3, 5), (5,)),
        ((100, 1.1, 130), (100, 110, 121, 130)),  # 100 * 1.1 is a little above 110
    ],
)
def test_rungs_stand_at_powers_of_the_factor_and_at_the_limit(given, iterations):
    assert rung_iterations(*given) == iterations


@pytest.mark.parametrize(
    ("count", "factor", "promotable"),
    [
        (1, 3, 0),
        (2, 3, 0),
        (3, 3, 1),
        (5, 3, 1),
        (6, 3, 2),
        (9, 3, 3),
        (33, 2.2, 15),  # 33 / 2.2 is a little below 15
    ],
)
def test_the_best_one_in_a_factor_rounded_down_is_promotable(count, factor, promotable):
    rung = Rung(1)
    for number in range(count):
        rung.enter(str(number), -number)
    best_first = [str(number) for number in reversed(range(count))]
    assert list(rung.promotable(factor, failed=())) == best_first[:promotable]


def test_of_equals_the_earlier_one_is_promotable():
    assert climbed([1.0, 1.0, 1.0]).next_up(anyone) == "0"


def test_a_promoted_trial_keeps_its_place_in_the_rung():
    rungs = climbed([0.3, 0.1, 0.2])
    rungs.promote("1")
    assert rungs.next_up(anyone) is None


def test_a_promoted_trial_outside_the_best_takes_no_place_in_the_rung():
    rungs = climbed([0.3, 0.1, 0.2])
    rungs.promote("1")
    rungs.report("3", 1, 0.05)
    assert rungs.next_up(anyone) == "3"


def test_the_highest_rung_comes_first():
    rungs = climbed([0.1 * number for number in range(9)])
    for name in ("0", "1", "2"):
        rungs.promote(name)
        rungs.report(name, 3, 1.0 + int(name))
    rungs.report("9", 1, 0.0)
    rungs.report("10", 1, 0.0)
    rungs.report("11", 1, 0.0)
    assert rungs.next_up(anyone) == "0"
    rungs.promote("0")
    assert rungs.next_up(anyone) == "9"


def test_nothing_is_promoted_from_the_last_rung():
    assert climbed([0.1] * 9, iterations=(9,)).next_up(anyone) is None


def test_the_next_best_goes_up_while_the_best_cannot():
    rungs = climbed([0.1 * number for number in range(6)])
    assert rungs.next_up(lambda name: name != "0") == "1"


def test_the_place_of_a_trial_that_fails_goes_to_the_next_best():
    rungs = climbed([0.3, 0.1, 0.2])
    rungs.promote("1")
    rungs.fail("1")
    assert rungs.next_up(anyone) == "2"


def test_a_trial_that_is_tried_again_has_its_place_back():
    rungs = climbed([0.3, 0.1, 0.2])
    rungs.promote("1")
    rungs.fail("1")
    rungs.readmit("1")
    assert rungs.next_up(anyone) is None


def test_a_trial_that_comes_again_keeps_its_first_loss():
    rungs = climbed([0.3, 0.1, 0.2])
    rungs.report("0", 1, 0.0)
    assert rungs.next_up(anyone) == "1"


@pytest.mark.parametrize(("iteration", "waiting"), [(1, False), (2, False), (3, True), (4, True)])
def test_a_trial_is_held_from_the_rung_on_that_it_was_not_promoted_from(iteration, waiting):
    rungs = climbed([0.1], iterations=(1, 3, 9))
    rungs.promote("0")
    rungs.report("0", iteration, 0.1)
    assert rungs.holds_at("0", iteration) is waiting
    assert rungs.holds("0") is waiting


def test_a_trial_that_has_not_reported_at_a_rung_is_not_held_there():
    assert not climbed([0.1]).holds_at("1", 1)


def test_a_trial_below_the_first_rung_is_not_held():
    rungs = PromotionRungs((2, 4), 2)
    rungs.report("0", 1, 0.1)
    assert not rungs.holds_at("0", 1)
    assert not rungs.holds("0")
    assert rungs.height("0") == 0


def test_the_last_one_held_is_the_worst_of_the_lowest_rung():
    rungs = climbed([0.1, 0.3, 0.2])
    assert rungs.worst_waiting(anyone) == "1"
    assert rungs.worst_waiting(lambda name: name == "0") == "0"
    rungs.promote("0")
    assert rungs.worst_waiting(lambda name: name == "0") is None


def test_a_ladder_is_told_from_the_top():
    assert str(climbed([0.1, 0.2])) == "9: 0, 3: 0, 1: 2"
