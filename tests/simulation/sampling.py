"""Many random configs at once."""

from typing import Any

import numpy as np

from tune_tf.space import Choice, SearchSpace


def random_values(space: SearchSpace, count: int, rng: np.random.Generator) -> dict[str, Any]:
    """Return an array of values for each parameter of a space, conditional or not."""
    return {path: _draw(each, count, rng) for path, each in space.parameters.items()}


def _draw(parameter: Any, count: int, rng: np.random.Generator) -> Any:
    if isinstance(parameter, Choice):
        return np.array(parameter.options)[rng.integers(len(parameter.options), size=count)]
    if parameter.log and isinstance(parameter.low, int):
        low, high = np.log(parameter.low - 0.5), np.log(parameter.high + 0.5)
        return np.round(np.exp(rng.uniform(low, high, count))).astype(int)
    if parameter.log:
        return np.exp(rng.uniform(np.log(parameter.low), np.log(parameter.high), count))
    if isinstance(parameter.low, int):
        return rng.integers(parameter.low, parameter.high, endpoint=True, size=count)
    return rng.uniform(parameter.low, parameter.high, count)
