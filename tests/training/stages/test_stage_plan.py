"""Which stage a layer goes to, and which models cannot be cut."""

import keras
import pytest

from tune_tf.errors import WorkloadError
from tune_tf.training.stages.stage_plan import calls_of, split_evenly, stage_plan

dense = keras.layers.Dense


@pytest.mark.parametrize(
    ("sizes", "num_parts", "parts"),
    [
        pytest.param([1, 1, 1, 1], 2, (0, 0, 1, 1), id="equal"),
        pytest.param([9, 1, 1, 1], 2, (0, 1, 1, 1), id="one-large"),
        pytest.param([1, 1, 1, 9], 3, (0, 0, 1, 2), id="large-last"),
        pytest.param([5, 0, 0, 5], 2, (0, 0, 0, 1), id="weightless-stay-behind"),
        pytest.param([0, 0], 2, (0, 1), id="nothing-to-weigh"),
        pytest.param([3], 1, (0,), id="one"),
    ],
)
def test_the_largest_part_is_as_small_as_can_be(sizes, num_parts, parts):
    assert split_evenly(sizes, num_parts) == parts


def by_name(model, num_stages, **stages):
    calls = calls_of(model)
    plan = stage_plan(calls, num_stages, lambda layer: stages.get(layer.name))
    return {call.operation.name: stage for call, stage in zip(calls, plan, strict=True)}


def named(*names):
    return keras.Sequential([keras.Input((4,)), *(dense(4, name=name) for name in names)])


def test_layers_that_the_user_does_not_place_stay_with_those_before():
    plan = by_name(named("a", "b", "c", "d"), 2, c=1)

    assert [plan[name] for name in "abcd"] == [0, 0, 1, 1]


def shared(config=None):
    x = keras.Input((4,))
    twice = dense(4, name="twice")
    return keras.Model(x, twice(dense(4, name="between")(twice(x))))


def test_a_layer_that_is_called_twice_stays_whole():
    x = keras.Input((4,))
    twice = dense(4, name="twice")
    model = keras.Model(x, dense(4, name="end")(twice(dense(4, name="between")(twice(x)))))

    plan = by_name(model, 2)

    assert (plan["twice"], plan["between"], plan["end"]) == (0, 0, 1)


class Custom(keras.Model):
    def __init__(self):
        super().__init__()
        self.inner = dense(2)

    def call(self, x):
        return self.inner(x)


def test_a_model_that_calls_its_layers_itself_has_no_graph():
    model = Custom()
    model(keras.ops.ones((1, 4)))

    with pytest.raises(WorkloadError, match="Custom calls its layers in custom code"):
        calls_of(model)


@pytest.mark.parametrize(
    ("model", "num_stages", "stages", "match"),
    [
        pytest.param(lambda: named("a", "b"), 3, {}, r"has 2 layer\(s\), .* 3 stages", id="few"),
        pytest.param(shared, 2, {}, "'twice' is shared .* with stage_of", id="shared-by-all"),
        pytest.param(
            lambda: named("a", "b"), 2, {"a": 0}, "no layer on stage 1 of 2", id="empty-stage"
        ),
        pytest.param(
            lambda: named("a", "b"), 2, {"a": 1, "b": 0}, "cut at the layer 'b'", id="backwards"
        ),
        pytest.param(shared, 2, {"between": 1}, "'twice' is shared across stages", id="shared"),
        pytest.param(
            lambda: named("a", "b"),
            2,
            {"a": 2},
            "stage_of returned 2 for .* 'a'.* from 0 to 1",
            id="2",
        ),
    ],
)
def test_what_cannot_be_cut_says_at_which_layer(model, num_stages, stages, match):
    with pytest.raises(WorkloadError, match=match):
        by_name(model(), num_stages, **stages)
