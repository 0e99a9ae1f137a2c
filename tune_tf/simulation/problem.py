"""Problem for simulated sweeps: a search space with known learning curves."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tune_tf.errors import InvalidSettingsError
from tune_tf.objective import Objective
from tune_tf.space import SearchSpace, flat

EPOCH_S = 60.0
"""Default virtual seconds per iteration."""

Values = Mapping[str, Any]
"""Flat config, or many configs as one array per parameter."""


def _a_minute(values: Values) -> Any:
    return EPOCH_S


@dataclass(frozen=True)
class Problem:
    """Search space with known learning curves.

    Args:
        about: Sentence on its origin and difficulty.
        max_t: Iterations of a full run (full fidelity).
        curve: Function from a flat config and an iteration, 1 to ``max_t``, to the metric.
        target: Value at full fidelity that one in 1,000 random configs reaches.
        cost_s: Function that returns the virtual seconds per iteration of a flat config.
        held_out: Whether the problem is reserved for evaluation and nothing may be tuned on it.

    Raises:
        InvalidSettingsError: ``max_t`` is not a positive whole number.
    """

    name: str
    about: str
    space: SearchSpace
    objective: Objective
    max_t: int
    curve: Callable[[Values, int], Any]
    target: float
    cost_s: Callable[[Values], Any] = _a_minute
    held_out: bool = False

    def __post_init__(self) -> None:
        """Validate the settings."""
        if isinstance(self.max_t, bool) or not isinstance(self.max_t, int) or self.max_t < 1:
            raise InvalidSettingsError(
                [f"max_t must be an integer of at least 1, not {self.max_t!r}"]
            )

    def value(self, config: Mapping[str, Any], iteration: int) -> float:
        """Return the metric of a nested config after an iteration; constant from ``max_t`` on."""
        values = flat(config, self.space.parameters)
        return float(self.curve(values, min(iteration, self.max_t)))

    def seconds(self, config: Mapping[str, Any]) -> float:
        """Return the virtual seconds per iteration of a nested config."""
        return float(self.cost_s(flat(config, self.space.parameters)))

    def is_met(self, value: float) -> bool:
        """Return whether a value at full fidelity reaches the target."""
        return not self.objective.better(self.target, value)
