"""Where values stand along an axis."""

import numpy as np
import pytest

from tune_tf.report.plots.axis import metric_axis, parameter_axes
from tune_tf.space import SearchSpace


def axis_of(parameter, *configs):
    space = SearchSpace.from_dict({"p": parameter})
    (axis,) = parameter_axes(space, configs).visible
    return axis


def test_a_choice_stands_at_the_place_of_its_option():
    axis = axis_of({"choice": [[1, 2], None, True, "a"]}, *({"p": p} for p in [True, None, [1, 2]]))
    assert list(axis.values) == [2, 1, 0]
    assert axis.options == ("[1, 2]", "None", "True", "a")


def test_an_inactive_parameter_is_missing_and_not_the_option_none():
    axis = axis_of({"choice": [None, 1]}, {"p": None}, {})
    assert list(axis.missing) == [False, True]


def test_a_logarithmic_parameter_has_its_middle_at_the_geometric_mean():
    axis = axis_of({"loguniform": [1e-4, 1.0]}, {"p": 1e-2})
    assert axis.log
    assert axis.scale(axis.values) == pytest.approx([0.5])


def test_an_axis_reaches_as_far_as_the_values_do():
    axis = axis_of({"uniform": [0, 1]}, {"p": 1.5})
    assert (axis.low, axis.high) == (0, 1.5)


def test_jitter_keeps_a_mark_by_its_option():
    axis = axis_of({"choice": ["a", "b"]}, *({"p": "b"} for _ in range(50)))
    assert np.abs(axis.jittered - 1).max() <= 0.25
    assert len(set(axis.jittered)) == 50


def test_constants_are_no_axes_and_what_does_not_fit_is_named():
    space = SearchSpace.from_dict({"k": 1} | {name: {"uniform": [0, 1]} for name in "abc"})
    axes = parameter_axes(space, [], limit=2)
    assert [axis.label for axis in axes.visible] == ["a", "b"]
    assert axes.left_out == ("c",)


@pytest.mark.parametrize(
    ("values", "log"),
    [([0.001, 1.0, 10.0], True), ([0.5, 1.0], False), ([-1.0, 100.0], False), ([], False)],
)
def test_a_metric_is_logarithmic_where_it_spans_orders_of_magnitude(values, log):
    assert metric_axis("m", np.array(values, dtype=float)).log is log


def test_a_metric_that_is_the_same_everywhere_stands_in_the_middle():
    axis = metric_axis("m", np.array([2.0, 2.0]))
    assert list(axis.scale(axis.values)) == [0.5, 0.5]
