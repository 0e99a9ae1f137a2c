"""Which candidates live at a time."""

from tune_tf.estimate.scaling.benchmark_rounds import group_by_capacity

ROOM = {"CPU": 6.0, "bytes": 5.0}
ONE = {"CPU": 1.0, "bytes": 1.0}


def test_candidates_that_fit_beside_the_reference_share_a_group():
    assert group_by_capacity([ONE, ONE], ROOM, ONE) == ([[0, 1]], [])


def test_candidates_over_capacity_form_a_second_group():
    needs = [{"CPU": 2.0, "bytes": 2.0}] * 3
    assert group_by_capacity(needs, ROOM, ONE) == ([[0, 1], [2]], [])


def test_a_candidate_without_room_beside_the_reference_runs_alone():
    needs = [ONE, {"CPU": 6.0, "bytes": 1.0}, {"GPU": 1.0}]
    assert group_by_capacity(needs, ROOM, ONE) == ([[0]], [1, 2])
