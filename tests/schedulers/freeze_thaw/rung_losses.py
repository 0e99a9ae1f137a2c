"""Losses at rungs of made-up trials, and models of them."""

import numpy as np

from tune_tf.schedulers.curve_model import CurveModel

GROUPS = np.array([0, 1])


BELOW = -100.0
"""Losses around it are modelled as they are; positive ones, or accuracies, by logarithms."""


def curves(count, num_rungs=3, seed=0, noise=0.02, offset=BELOW):
    """Return configs and their losses, which fall by a third at each rung."""
    rng = np.random.default_rng(seed)
    features = rng.random((count, 2))
    first = 1 + 3 * np.abs(features[:, 0] - 0.4) + 0.3 * features[:, 1]
    levels = [first * (2 / 3) ** rung for rung in range(num_rungs)]
    return features, offset + np.stack(levels, 1) + rng.normal(0, noise, (count, num_rungs))


def partly(losses, passed):
    """Return losses of which the first ``passed[rung]`` trials have passed a rung."""
    known = np.arange(len(losses))[:, None] < np.array(passed)
    return np.where(known, losses, np.nan)


def begun(losses, known):
    """Return losses of which the first ``known`` rungs are passed."""
    return np.where(np.arange(losses.shape[1]) < known, losses, np.nan)


def fitted(features, losses, rng=None):
    model = CurveModel(losses.shape[1], GROUPS)
    model.fit(features, losses, rng or np.random.default_rng(0))
    return model


def usual(passed=(30, 15, 8), **settings):
    features, losses = curves(30, len(passed), **settings)
    losses = partly(losses, passed)
    return fitted(features, losses), features, losses
