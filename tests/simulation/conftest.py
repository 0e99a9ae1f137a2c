"""A problem whose values are told by hand."""

import pytest

from tune_tf.objective import Objective
from tune_tf.simulation import Problem
from tune_tf.space import Float, SearchSpace


def made_problem(curve, *, max_t=9, target=0.0, cost_s=lambda values: 10.0):
    return Problem(
        "made",
        "Made by hand.",
        SearchSpace({"x": Float(0.0, 1.0)}),
        Objective("val_loss", "min"),
        max_t,
        curve,
        target,
        cost_s,
    )


@pytest.fixture
def problem():
    """Configs ``x`` from 0 up, with the best at 1, then at 4, 7 and 0."""
    return made_problem(lambda values, iteration: (values["x"] * 7 + 3) % 10 + 1 / iteration)
