import pytest

from tune_tf.errors import InvalidSettingsError
from tune_tf.inspection import compare_sweeps


@pytest.fixture
def two(sweeps):
    first, second = sweeps(name="first"), sweeps(name="second")
    first.run(0, 0.6)
    second.run(1, 0.7)
    for sweep in (first, second):
        sweep.finish()
    return sweeps.storage_path


def test_comparison_names_the_better_sweep_and_shows_both_best_configs(two):
    comparison = compare_sweeps(["first", "second"], storage_path=two)
    assert comparison.best.config.name == "second"
    assert comparison.best_configs == {
        "optimizer": ("adamw", "sgd"),
        "block/width": (8, 9),
        "momentum": (None, 0.9),
    }


def test_a_sweep_without_a_value_is_compared_too(two, sweeps):
    sweeps(name="third").leave()
    comparison = compare_sweeps(["third", "first"], storage_path=two)
    assert comparison.best.config.name == "first"
    assert comparison.best_configs["optimizer"] == (None, "adamw")


def test_sweeps_of_different_objectives_are_not_compared(two, sweeps):
    sweeps(name="third", objective={"metric": "loss", "mode": "min"})
    with pytest.raises(InvalidSettingsError, match=r"first-.*max val_accuracy, third-.*min loss"):
        compare_sweeps(["first", "third"], storage_path=two)


@pytest.mark.parametrize(
    ("names", "expected"), [(["first"], "at least two sweeps"), (["first", "first"], "named twice")]
)
def test_fewer_than_two_sweeps_are_not_compared(two, names, expected):
    with pytest.raises(InvalidSettingsError, match=expected):
        compare_sweeps(names, storage_path=two)
