"""The config that is measured."""

from tune_tf.estimate.extreme_configs import fill_with_middle
from tune_tf.space import SearchSpace
from tune_tf.space.paths import nest


def test_it_lies_in_the_middle_of_every_range_and_in_the_space():
    space = SearchSpace.from_dict(
        {
            "optimizer": {"choice": ["adamw", "sgd"]},
            "momentum": {"uniform": [0.0, 0.9], "when": {"optimizer": "sgd"}},
            "decay": {"loguniform": [1e-6, 1e-2], "when": {"optimizer": "adamw"}},
            "model": {"filters": {"choice": [32, 8, 16]}, "depth": {"int": [1, 4]}},
            "dropout": {"quniform": [0.0, 0.5, 0.1]},
            "batch_size": 64,
        }
    )
    config = nest(fill_with_middle(space, {}))
    assert config == {
        "optimizer": "adamw",
        "decay": 1e-4,
        "model": {"filters": 16, "depth": 3},
        "dropout": 0.2,
        "batch_size": 64,
    }
    assert space.validate(config) == []
