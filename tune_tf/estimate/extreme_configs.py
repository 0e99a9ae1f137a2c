"""Middle and extreme configs of a search space."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from tune_tf.space import Choice, Constant, Float, Int, SearchSpace
from tune_tf.space.parameter import Parameter, is_number
from tune_tf.space.paths import nest

_MAX_OPTIONS = 8


def middle_value(parameter: Parameter) -> Any:
    """Return the middle of one parameter.

    It is geometric for logarithmic ranges, the (upper) median for numeric options, and the first
    option otherwise.
    """
    if isinstance(parameter, Constant):
        return parameter.value
    if isinstance(parameter, Choice):
        options = list(parameter.options)
        if all(map(is_number, options)):
            return sorted(options)[len(options) // 2]
        return options[0]
    if isinstance(parameter, Float | Int):
        low, high = float(parameter.low), float(parameter.high)
        middle = math.sqrt(low * high) if parameter.log else (low + high) / 2
        if parameter.step:
            middle = low + round((middle - low) / parameter.step) * parameter.step
        return int(middle) if isinstance(parameter, Int) else float(f"{middle:.12g}")
    raise TypeError(f"{type(parameter).__name__} has no middle")


def fill_with_middle(space: SearchSpace, fixed: Mapping[str, Any]) -> dict[str, Any]:
    """Return a flat config of the fixed values and the middle of every other parameter."""
    values: dict[str, Any] = {}
    for path, parameter in space.parameters.items():
        if parameter.condition.holds(values):
            values[path] = fixed[path] if path in fixed else middle_value(parameter)
    return values


def extreme_values(parameter: Parameter) -> list[Any]:
    """Return both bounds of a parameter, or at most nine evenly spaced options."""
    if isinstance(parameter, Constant):
        return [parameter.value]
    if isinstance(parameter, Choice):
        options = list(parameter.options)
        step = math.ceil(len(options) / _MAX_OPTIONS)
        return [*options[::step], *options[-1:]] if step > 1 else options
    if isinstance(parameter, Float | Int):
        return [parameter.low, parameter.high]
    raise TypeError(f"{type(parameter).__name__} has no ends")


def extreme_config(
    space: SearchSpace, size_of: Callable[[dict[str, Any]], float], *, largest: bool
) -> dict[str, Any]:
    """Search for the nested config with the largest or the smallest model.

    One pass of coordinate descent over the parameters, each after those it depends on; exact if a
    value that enlarges one model enlarges every other.
    """
    fixed: dict[str, Any] = {}
    sign = 1 if largest else -1
    for path, parameter in space.parameters.items():
        values = extreme_values(parameter)
        if len(values) == 1 or path not in fill_with_middle(space, fixed):
            continue
        sizes = [
            sign * size_of(nest(fill_with_middle(space, {**fixed, path: value})))
            for value in values
        ]
        # A parameter without effect keeps its middle value, where training most likely works.
        if min(sizes) < max(sizes):
            fixed[path] = values[sizes.index(max(sizes))]
    return nest(fill_with_middle(space, fixed))
