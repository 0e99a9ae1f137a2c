import pytest

from tune_tf.errors import WorkloadError
from tune_tf.estimate.planning.model_profiles import ModelProfile, profile_models
from tune_tf.space import SearchSpace

SPACE = SearchSpace.from_dict(
    {
        "width": {"choice": [16, 64]},
        "optimizer": {"choice": ["adam", "sgd"]},
        "dropout": {"quniform": [0.0, 0.5, 0.1]},
        "learning_rate": {"loguniform": [1e-4, 1e-1]},
    }
)


def build_profile(config):
    dropped = config["dropout"] > 0  # none at all is another program
    return ModelProfile(
        config=dict(config),
        num_parameters=100 * config["width"],
        state_bytes=1200 * config["width"] * (1 + (config["optimizer"] == "adam")),
        work=100.0 * config["width"],
        activation_bytes=4.0 * config["width"],
        batch_size=32,
        key=f"{config['width']} {config['optimizer']} {dropped}",
    )


def test_the_ends_are_found_and_random_models_beside_them():
    found = profile_models(SPACE, build_profile, seed=0)
    assert (found.largest.config["width"], found.largest.config["optimizer"]) == (64, "adam")
    assert (found.smallest.config["width"], found.smallest.config["optimizer"]) == (16, "sgd")
    assert len(found.random) == 12
    assert found.shares


def test_the_parameters_that_decide_about_a_program_are_known():
    structural = profile_models(SPACE, build_profile, seed=0).structural
    assert structural == {"width": "value", "optimizer": "value", "dropout": "lowest"}


def test_a_corner_that_cannot_be_built_is_refused_with_its_config():
    def broken(config):
        if config["width"] == 64:
            raise ValueError("negative dimension size")
        return build_profile(config)

    with pytest.raises(WorkloadError, match=r"width=64.*negative dimension size; narrow the space"):
        profile_models(SPACE, broken, seed=0)


def test_random_ones_that_cannot_be_built_are_counted():
    def broken(config):
        if 1.1e-4 < config["learning_rate"] < 2e-3:
            raise ValueError("no")
        return build_profile(config)

    found = profile_models(SPACE, broken, seed=0)
    assert len(found.broken) > 0
    assert len(found.broken) + len(found.random) == 12
    assert "ValueError: no" in found.broken[0]


def test_after_a_long_time_of_building_few_random_models_are_enough():
    now = iter(range(0, 10_000, 60))
    assert len(profile_models(SPACE, build_profile, seed=0, clock=lambda: next(now)).random) == 2
