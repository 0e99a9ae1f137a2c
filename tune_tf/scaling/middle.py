"""A config from the middle of a search space."""

import math
from typing import Any

from tune_tf.space import Choice, Constant, Float, Int, SearchSpace
from tune_tf.space.parameter import Parameter
from tune_tf.space.paths import nested


def middle_config(space: SearchSpace) -> dict[str, Any]:
    """Return a nested config with the middle of each range.

    Of a logarithmic range it is the middle of the logarithm; of options that are numbers the
    median, the upper one of two; of other options the first.
    """
    values: dict[str, Any] = {}
    for path, parameter in space.parameters.items():
        if parameter.condition.holds(values):
            values[path] = middle_value(parameter)
    return nested(values)


def middle_value(parameter: Parameter) -> Any:
    """Return the middle of one parameter, as :func:`middle_config` takes it."""
    if isinstance(parameter, Constant):
        return parameter.value
    if isinstance(parameter, Choice):
        options = list(parameter.options)
        if all(isinstance(each, int | float) and not isinstance(each, bool) for each in options):
            return sorted(options)[len(options) // 2]
        return options[0]
    if isinstance(parameter, Float | Int):
        low, high = float(parameter.low), float(parameter.high)
        middle = math.sqrt(low * high) if parameter.log else (low + high) / 2
        if parameter.step:
            middle = low + round((middle - low) / parameter.step) * parameter.step
        return int(middle) if isinstance(parameter, Int) else float(f"{middle:.12g}")
    raise TypeError(f"{type(parameter).__name__} has no middle")
