"""Growing rungs of PASHA: noise estimate and opening of rungs."""

import pytest

from tune_tf.schedulers.rungs import GrowingRungs, is_same_ranking, ranking_noise

BELOW = [("a", 0.10), ("b", 0.20), ("c", 0.30), ("d", 0.35)]


def ranking(names):
    return [(name, float(rank)) for rank, name in enumerate(names)]


@pytest.mark.parametrize(
    ("top", "epsilon", "same"),
    [
        ("abc", 0.0, True),
        ("bac", 0.0, False),
        ("bac", 0.11, True),
        ("cab", 0.11, False),
        ("cab", 0.21, True),
        ("ad", 0.0, True),
        ("da", 0.2, False),
        ("a", 0.0, True),
        ("", 0.0, True),
    ],
)
def test_a_ranking_is_the_same_if_each_rank_is_within_epsilon_below(top, epsilon, same):
    assert is_same_ranking(BELOW, ranking(top), epsilon) is same


def test_a_trial_that_is_not_known_below_does_not_count():
    assert is_same_ranking(BELOW, ranking("xab"), 0.0)


def curves(**losses):
    return {
        name: {step: loss for step, loss in enumerate(curve, start=1) if loss is not None}
        for name, curve in losses.items()
    }


@pytest.mark.parametrize(
    ("one", "other", "noise"),
    [
        ([3, 1, 3], [2, 2, 2.5], 0.5),
        ([3, 3, 1], [2, 2, 2], None),
        ([1, 1, 1], [2, 2, 2], None),
        ([3, 2, 1, 3], [2, 2, 2, 2.25], 0.75),
        ([3, 1, 3], [2, 2], None),
        ([3, 1, 3, 1], [2, 2, 2], 1.0),
    ],
    ids=[
        "crosses and crosses back",
        "crosses once",
        "never crosses",
        "equal in between",
        "back only where one has no value",
        "distance at the last common iteration",
    ],
)
def test_noise_is_the_distance_of_curves_that_cross_and_cross_back(one, other, noise):
    assert ranking_noise(curves(one=one, other=other), below=2, top=9) == noise


def test_noise_is_the_90th_percentile_over_pairs():
    # Three flat curves, and one that crosses all of them and crosses back.
    given = curves(a=[1, 1, 1], b=[2, 2, 2], c=[3, 3, 3], x=[4, 0, 4])
    assert ranking_noise(given, below=2, top=3) == pytest.approx(1 + 0.9 * 2)


def test_ranking_noise_ignores_reports_after_the_top_rung():
    assert ranking_noise(curves(one=[3, 1, 3], other=[2, 2, 2]), below=1, top=2) is None


def ladder_with(*first):
    """Return a ladder (1, 2, 4, 8) to whose first rung trials a, b, ... came; all are promoted."""
    rungs = GrowingRungs((1, 2, 4, 8), 2)
    for name, loss in zip("abcdefgh", first, strict=False):
        rungs.report(name, 1, loss)
        rungs.promote(name)
    return rungs


def test_two_rungs_are_open_at_first():
    assert GrowingRungs((1, 2, 4, 8), 2).limit == 2
    assert GrowingRungs((8,), 2).limit == 8


def test_the_limit_stays_while_the_ranking_does():
    rungs = ladder_with(0.1, 0.2, 0.3)
    for name, loss in zip("abc", (0.01, 0.02, 0.03), strict=True):
        rungs.report(name, 2, loss)
    assert rungs.limit == 2


def test_a_changed_ranking_opens_a_rung_and_promotes_from_the_old_top():
    rungs = ladder_with(0.1, 0.2)
    rungs.report("a", 2, 0.02)
    assert rungs.next_up(lambda _: True) is None
    rungs.report("b", 2, 0.01)
    assert rungs.limit == 4
    assert rungs.next_up(lambda _: True) == "b"


@pytest.mark.parametrize("num_rungs", [1, 2, 3])
def test_the_limit_grows_to_the_last_rung_at_most(num_rungs):
    rungs = ladder_with(0.1, 0.2, 0.3)
    for iteration, best_first in ((2, "bac"), (4, "bca"), (8, "cba"))[:num_rungs]:
        for loss, name in enumerate(best_first):
            rungs.report(name, iteration, float(loss))
    assert rungs.limit == (4, 8, 8)[num_rungs - 1]


def test_a_change_within_the_noise_does_not_let_the_limit_grow():
    rungs = GrowingRungs((3, 6, 12), 2)
    # a and b cross and cross back, 0.02 apart at the top; c and d change ranks by less below.
    losses = {
        "a": [0.5, 0.4, 0.30, 0.30, 0.30, 0.30],
        "b": [0.4, 0.5, 0.31, 0.29, 0.29, 0.32],
        "c": [0.9, 0.8, 0.70, 0.65, 0.61, 0.60],
        "d": [1.0, 0.9, 0.71, 0.64, 0.60, 0.59],
    }
    for step in range(6):
        for name, curve in losses.items():
            rungs.report(name, step + 1, curve[step])
    assert rungs.epsilon == pytest.approx(0.02)
    assert rungs.limit == 6


def test_a_trial_that_comes_to_the_top_again_changes_nothing():
    rungs = ladder_with(0.1, 0.2)
    for loss in (0.02, 0.9):
        rungs.report("a", 2, loss)
    assert rungs.limit == 2
