"""Configs of a space that are measured: middle, smallest and largest."""

from tune_tf.measure.extreme_configs import extreme_values, fill_with_middle, largest_config
from tune_tf.space import Choice, Float, SearchSpace
from tune_tf.space.paths import nest

SPACE = SearchSpace(
    {
        "kind": {"choice": ["dense", "conv"]},
        "filters": {"int": [4, 64], "when": {"kind": "conv"}},
        "model": {"width": {"choice": [16, 64, 32]}},
        "learning_rate": {"loguniform": [1e-4, 1e-2]},
        "dropout": {"uniform": [0.0, 0.5, 0.1]},
        "batch_size": {"choice": [8, 16, 32]},
    }
)


def size(config):
    return config["model"]["width"] + 10 * config.get("filters", 0)


def test_the_middle_config_lies_in_the_middle_of_every_range_and_in_the_space():
    config = nest(fill_with_middle(SPACE, {}))
    assert config == {
        "kind": "dense",
        "model": {"width": 32},
        "learning_rate": 1e-3,
        "dropout": 0.2,
        "batch_size": 16,
    }
    assert SPACE.validate(config) == []
    assert fill_with_middle(SPACE, {"kind": "conv", "filters": 5})["filters"] == 5


def test_the_largest_config_takes_conditions_and_batches_that_make_it_large():
    largest = largest_config(SPACE, lambda it: (size(it), it["batch_size"]))
    assert (largest["kind"], largest["filters"], largest["model"]) == ("conv", 64, {"width": 64})
    assert largest["batch_size"] == 32
    assert largest["learning_rate"] == 1e-3  # what makes no difference stays in the middle
    assert SPACE.validate(largest) == []


def test_the_smallest_config_leaves_out_what_is_inactive():
    smallest = largest_config(SPACE, lambda it: (-size(it), -it["batch_size"]))
    assert (smallest["kind"], smallest["model"]["width"], smallest["batch_size"]) == (
        "dense",
        16,
        8,
    )
    assert "filters" not in smallest


def test_ends_of_ranges_and_options():
    assert extreme_values(Float(0.0, 1.0)) == [0.0, 1.0]
    assert extreme_values(Choice([3, 1, 2])) == [1, 3]
    assert extreme_values(Choice(["a", "b", "c"])) == ["a", "b", "c"]
