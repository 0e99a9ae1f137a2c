"""Optimization test functions and learning-curve shapes; lower is better.

All functions accept NumPy arrays and single values.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

BRANIN_MINIMUM = 0.39788735772973816
HARTMANN6_MINIMUM = -3.32236801141551

_HARTMANN6_A = np.array(
    [
        [10, 3, 17, 3.5, 1.7, 8],
        [0.05, 10, 17, 0.1, 8, 14],
        [3, 3.5, 1.7, 10, 17, 8],
        [17, 8, 0.05, 10, 0.1, 14],
    ]
)
_HARTMANN6_P = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)
_HARTMANN6_ALPHA = np.array([1.0, 1.2, 3.0, 3.2])


def branin(x1: Any, x2: Any) -> Any:
    """Branin function on [-5, 10] x [0, 15]; three minima of :data:`BRANIN_MINIMUM`.

    Source: Dixon and Szego, Towards Global Optimization 2, 1978;
    https://www.sfu.ca/~ssurjano/branin.html
    """
    bowl = x2 - 5.1 / (4 * math.pi**2) * x1**2 + 5 / math.pi * x1 - 6
    return bowl**2 + 10 * (1 - 1 / (8 * math.pi)) * np.cos(x1) + 10


def hartmann6(x: Sequence[Any]) -> Any:
    """Six-dimensional Hartmann function on [0, 1]; minimum :data:`HARTMANN6_MINIMUM`.

    Source: Dixon and Szego, 1978; https://www.sfu.ca/~ssurjano/hart6.html
    """
    total = 0.0
    for alpha, rates, centre in zip(_HARTMANN6_ALPHA, _HARTMANN6_A, _HARTMANN6_P, strict=True):
        inner = sum(a * (xi - p) ** 2 for a, p, xi in zip(rates, centre, x, strict=True))
        total = total - alpha * np.exp(-inner)
    return total


def levy(x: Sequence[Any]) -> Any:
    """Levy function on [-10, 10] per dimension; minimum 0 at all ones.

    Source: Levy and Montalvo, SIAM J. Sci. Stat. Comput. 6, 1985;
    https://www.sfu.ca/~ssurjano/levy.html
    """
    w = [1 + (xi - 1) / 4 for xi in x]
    total = np.sin(math.pi * w[0]) ** 2
    for wi in w[:-1]:
        total = total + (wi - 1) ** 2 * (1 + 10 * np.sin(math.pi * wi + 1) ** 2)
    return total + (w[-1] - 1) ** 2 * (1 + np.sin(2 * math.pi * w[-1]) ** 2)


def rosenbrock(x: Sequence[Any]) -> Any:
    """Rosenbrock function on [-2, 2] per dimension; minimum 0 at all ones.

    Source: Rosenbrock, The Computer Journal 3, 1960; https://www.sfu.ca/~ssurjano/rosen.html
    """
    return sum(
        100 * (after - before**2) ** 2 + (1 - before) ** 2
        for before, after in itertools.pairwise(x)
    )


def option_loss(option: Any, offsets: Mapping[str, float]) -> Any:
    """Return the offset of an option, or an array of offsets for an array of options."""
    if isinstance(option, str):
        return offsets[option]
    return np.vectorize(offsets.__getitem__, otypes=[float])(option)


def excess_loss(progress: float, tau: Any) -> Any:
    """Return the excess loss that is left: exp(-p / tau), shifted to reach 0 at the end.

    Args:
        progress: Share of the iterations done, above 0 to 1.
        tau: Share of the iterations in which the excess falls to 1/e.
    """
    return np.exp(-progress / tau) - np.exp(-1 / tau)


def crossing_loss(units: Sequence[Any], progress: float) -> Any:
    """Return an excess loss whose start and decay differ by region, so that curves cross.

    Both are smooth waves over the space, independent of the quality of a config: the start ranges
    from 0.2 to 1.8, tau from 0.08 to 0.5 of the iterations.

    Args:
        units: Parameters scaled to [0, 1].
        progress: Share of the iterations done.
    """
    phase = sum((number + 1) * unit for number, unit in enumerate(units))
    start = 1 + 0.8 * np.cos(2 * math.pi * phase)
    return start * excess_loss(progress, 0.29 + 0.21 * np.sin(2 * math.pi * phase))


def curve_noise(units: Sequence[Any], progress: float, size: float) -> Any:
    """Return noise that is fixed per config and iteration, and 0 at full fidelity.

    Uniform, with standard deviation ``size`` at the start; the sine hash common in shaders.
    """
    seed = sum((12.9898 + 7.233 * number) * unit for number, unit in enumerate(units))
    hashed = np.sin(seed * 1e3 + 78.233 * progress) * 43758.5453
    return size * math.sqrt(12) * (hashed - np.floor(hashed) - 0.5) * (1 - progress)
