"""Which candidates live at a time."""

from tune_tf.estimate.scaling.benchmark_rounds import group_by_capacity

ROOM = {"CPU": 6.0, "bytes": 5.0}
ONE = {"CPU": 1.0, "bytes": 1.0}


def test_those_that_fit_beside_the_reference_live_together():
    assert group_by_capacity([ONE, ONE], ROOM, ONE) == ([[0, 1]], [])


def test_others_come_after_them():
    needs = [{"CPU": 2.0, "bytes": 2.0}] * 3
    assert group_by_capacity(needs, ROOM, ONE) == ([[0, 1], [2]], [])


def test_what_does_not_fit_beside_it_is_measured_alone():
    needs = [ONE, {"CPU": 6.0, "bytes": 1.0}, {"GPU": 1.0}]
    assert group_by_capacity(needs, ROOM, ONE) == ([[0]], [1, 2])
