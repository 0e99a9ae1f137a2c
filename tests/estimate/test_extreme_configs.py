from tune_tf.estimate.extreme_configs import extreme_config, extreme_values, fill_with_middle
from tune_tf.space import Choice, Float, SearchSpace

SPACE = SearchSpace.from_dict(
    {
        "kind": {"choice": ["dense", "conv"]},
        "filters": {"int": [4, 64], "when": {"kind": "conv"}},
        "width": {"choice": [16, 64, 32]},
        "learning_rate": {"loguniform": [1e-4, 1e-2]},
        "batch_size": 32,
    }
)


def size_of(config):
    return config["width"] + 10 * config.get("filters", 0)


def test_the_largest_one_takes_the_condition_that_makes_it_large():
    largest = extreme_config(SPACE, size_of, largest=True)
    assert (largest["kind"], largest["filters"], largest["width"]) == ("conv", 64, 64)


def test_the_smallest_one_leaves_out_what_is_inactive():
    smallest = extreme_config(SPACE, size_of, largest=False)
    assert (smallest["kind"], smallest["width"]) == ("dense", 16)
    assert "filters" not in smallest


def test_what_makes_no_difference_stays_in_the_middle():
    largest = extreme_config(SPACE, size_of, largest=True)
    assert largest["learning_rate"] == 1e-3
    assert SPACE.validate(largest) == []


def test_values_that_are_given_are_kept_and_conditions_hold():
    assert fill_with_middle(SPACE, {"kind": "conv", "filters": 5})["filters"] == 5
    assert "filters" not in fill_with_middle(SPACE, {"kind": "dense", "filters": 5})


def test_the_ends_of_a_range_and_of_many_options():
    assert extreme_values(Float(0.0, 1.0)) == [0.0, 1.0]
    many = extreme_values(Choice(list(range(100))))
    assert len(many) <= 10
    assert {0, 99} <= set(many)
