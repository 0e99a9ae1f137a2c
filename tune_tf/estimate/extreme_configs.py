"""The configs at the ends of a search space."""

import math
from collections.abc import Callable, Mapping
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


_MOST_OPTIONS = 8

ParameterValues = Mapping[str, Any]
"""A flat config: values by path."""


def completed(space: SearchSpace, chosen: ParameterValues) -> dict[str, Any]:
    """Return a flat config with the values that are given, and the middle of each other range."""
    values: dict[str, Any] = {}
    for path, parameter in space.parameters.items():
        if parameter.condition.holds(values):
            values[path] = chosen[path] if path in chosen else middle_value(parameter)
    return values


def ends(parameter: Parameter) -> list[Any]:
    """Return the values of a parameter that differ the most: both ends, or options."""
    if isinstance(parameter, Constant):
        return [parameter.value]
    if isinstance(parameter, Choice):
        options = list(parameter.options)
        every = math.ceil(len(options) / _MOST_OPTIONS)
        return [*options[::every], *options[-1:]] if every > 1 else options
    if isinstance(parameter, Float | Int):
        return [parameter.low, parameter.high]
    raise TypeError(f"{type(parameter).__name__} has no ends")


def corner(
    space: SearchSpace, size_of: Callable[[dict[str, Any]], float], *, largest: bool
) -> dict[str, Any]:
    """Return the nested config with the largest or the smallest model, as far as that is seen.

    Goes through the parameters once, in an order in which each stands after those it depends on,
    and keeps of each the value that makes the model larger, or smaller, with the others as they
    stand. That finds the corner where a value that enlarges one model enlarges every other.

    Args:
        space: What may be searched.
        size_of: Takes a nested config and returns how large its model is.
        largest: Which end.
    """
    chosen: dict[str, Any] = {}
    sign = 1 if largest else -1
    for path, parameter in space.parameters.items():
        if path not in completed(space, chosen):
            continue
        values = ends(parameter)
        sizes = [
            sign * size_of(nested(completed(space, {**chosen, path: value})))
            if len(values) > 1
            else 0.0
            for value in values
        ]
        best = max(sizes)
        # What makes no difference stays in the middle, where training is most likely to work.
        if min(sizes) < best or len(values) == 1:
            chosen[path] = values[sizes.index(best)]
    return nested(completed(space, chosen))
