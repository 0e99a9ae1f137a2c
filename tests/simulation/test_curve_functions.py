"""The functions have the minima that their sources tell."""

import math

import numpy as np
import pytest

from tune_tf.simulation import curve_functions


@pytest.mark.parametrize("point", [(-math.pi, 12.275), (math.pi, 2.275), (9.42478, 2.475)])
def test_branin_has_three_minima(point):
    assert curve_functions.branin(*point) == pytest.approx(curve_functions.BRANIN_MINIMUM, abs=1e-6)


def test_hartmann6_has_its_minimum():
    point = (0.20169, 0.150011, 0.476874, 0.275332, 0.311652, 0.6573)
    assert curve_functions.hartmann6(point) == pytest.approx(
        curve_functions.HARTMANN6_MINIMUM, abs=1e-5
    )


@pytest.mark.parametrize("function", [curve_functions.levy, curve_functions.rosenbrock])
def test_levy_and_rosenbrock_are_zero_at_all_ones(function):
    assert function([1.0, 1.0, 1.0]) == pytest.approx(0, abs=1e-12)
    assert function([1.0, 1.2, 1.0]) > 0


def test_a_curve_comes_down_to_the_value_at_full_fidelity():
    units = (0.3, 0.7)
    excess = [curve_functions.crossing_loss(units, progress) for progress in (0.05, 0.3, 0.9, 1.0)]
    assert excess == sorted(excess, reverse=True)
    assert excess[-1] == 0
    assert curve_functions.curve_noise(units, 1.0, 0.1) == 0


def test_curves_cross():
    rng = np.random.default_rng(0)
    first, second = rng.uniform(size=(2, 2, 1000))
    ahead = [
        curve_functions.crossing_loss(first, progress)
        < curve_functions.crossing_loss(second, progress)
        for progress in (1 / 27, 1 / 3)
    ]
    assert 0.1 < (ahead[0] != ahead[1]).mean() < 0.5


def test_noise_is_the_same_each_time_and_has_the_size_told():
    units = np.random.default_rng(0).uniform(size=(3, 50_000))
    noise = curve_functions.curve_noise(units, 0.0, 0.2)
    assert noise.std() == pytest.approx(0.2, rel=0.02)
    assert abs(noise.mean()) < 0.005
    assert np.array_equal(noise, curve_functions.curve_noise(units, 0.0, 0.2))
