"""Middle and extreme configs of a search space."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from tune_tf.formatting import value_text
from tune_tf.space import Choice, Float, Int, SearchSpace, flatten
from tune_tf.space.parameter import Parameter, is_number
from tune_tf.space.paths import nest


def middle_value(parameter: Parameter) -> Any:
    """Return the middle of one parameter.

    It is geometric for logarithmic ranges, the (upper) median for numeric options, and the first
    option otherwise.
    """
    if isinstance(parameter, Float | Int):
        low, high = float(parameter.low), float(parameter.high)
        middle = math.sqrt(low * high) if parameter.log else (low + high) / 2
        if parameter.step:
            middle = low + round((middle - low) / parameter.step) * parameter.step
        return int(middle) if isinstance(parameter, Int) else float(f"{middle:.12g}")
    options = _options(parameter)
    return sorted(options)[len(options) // 2] if all(map(is_number, options)) else options[0]


def fill_with_middle(space: SearchSpace, fixed: Mapping[str, Any]) -> dict[str, Any]:
    """Return a flat config of the fixed values and the middle of every other parameter."""
    values: dict[str, Any] = {}
    for path, parameter in space.parameters.items():
        if parameter.condition.holds(values):
            values[path] = fixed[path] if path in fixed else middle_value(parameter)
    return values


def extreme_values(parameter: Parameter) -> list[Any]:
    """Return both ends of a range or of numeric options, or all other options."""
    if isinstance(parameter, Float | Int):
        return [parameter.low, parameter.high]
    options = _options(parameter)
    return sorted({min(options), max(options)}) if all(map(is_number, options)) else options


def _options(parameter: Any) -> list[Any]:  # a choice or a constant
    return list(parameter.options if isinstance(parameter, Choice) else (parameter.value,))


def largest_config(
    space: SearchSpace, size_of: Callable[[dict[str, Any]], tuple[float, ...]]
) -> dict[str, Any]:
    """Search for the nested config of the largest size.

    One pass of coordinate descent over the parameters, each after those it depends on; exact if a
    value that enlarges one model enlarges every other.
    """
    fixed: dict[str, Any] = {}
    for path, parameter in space.parameters.items():
        values = extreme_values(parameter)
        if len(values) == 1 or path not in fill_with_middle(space, fixed):
            continue
        sizes = [size_of(nest(fill_with_middle(space, {**fixed, path: each}))) for each in values]
        # A parameter without effect keeps its middle value, where training most likely works.
        if min(sizes) < max(sizes):
            fixed[path] = values[sizes.index(max(sizes))]
    return nest(fill_with_middle(space, fixed))


def config_text(config: Mapping[str, Any]) -> str:
    """Format a config as ``optimizer=adamw, learning_rate=0.00316228``."""
    return ", ".join(f"{path}={value_text(value)}" for path, value in flatten(config).items())
