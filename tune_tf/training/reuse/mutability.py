"""Structural parameters: those that cannot change when a trial resumes from a checkpoint."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from tune_tf.errors import CheckpointError
from tune_tf.space import Choice, Float, SearchSpace, flatten, nest
from tune_tf.space.parameter import Parameter
from tune_tf.training.core.build import build_for_checkpoint
from tune_tf.training.core.checkpoint import VariableName, match_variables, variable_names
from tune_tf.workload import Config, Workload

_NUM_DRAWS = 2


def structural_parameters(
    workload: Workload, space: SearchSpace, paths: Iterable[str], seed: int = 0
) -> dict[str, str]:
    """Return the parameters whose change makes a checkpoint unusable, with the reason by path.

    The model is built for several values of each parameter, with the others fixed, to compare the
    variables of model and optimizer. The ``paths`` must be of unconditional parameters.
    """
    base = flatten(space.sample(np.random.default_rng(seed)))
    reasons = {}
    for path in paths:
        if dependent := [
            other for other, each in space.parameters.items() if path in each.condition
        ]:
            reasons[path] = f"other parameters depend on its value: {', '.join(dependent)}"
            continue
        values = _values(space.parameters[path], np.random.default_rng(seed))
        first = _names(workload, nest({**base, path: values[0]}))
        for value in values[1:]:
            try:
                match_variables(first, _names(workload, nest({**base, path: value})))
            except CheckpointError:
                reasons[path] = (
                    f"models with {values[0]!r} and {value!r} have variables of different shapes"
                )
                break
    return reasons


def _values(parameter: Parameter, rng: np.random.Generator) -> list[Any]:
    """Return values that cover the range of a parameter."""
    if isinstance(parameter, Choice):
        return list(parameter.options)
    draws = [parameter.draw(rng) for _ in range(_NUM_DRAWS)]
    if isinstance(parameter, Float):
        return [parameter.low, *draws]  # a low of zero may disable a variable
    return [parameter.low, parameter.high, *draws]  # type: ignore[attr-defined]


def _names(workload: Workload, config: Config) -> list[VariableName]:
    return variable_names(build_for_checkpoint(workload, config, seed=0))
