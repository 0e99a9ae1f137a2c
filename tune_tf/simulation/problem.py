"""Problem for simulated sweeps: a search space with known learning curves."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tune_tf.errors import InvalidSettingsError
from tune_tf.objective import Objective
from tune_tf.space import SearchSpace, flat

EPOCH_S = 60.0
"""Virtual seconds of an iteration, where a problem says nothing else."""

Values = Mapping[str, Any]
"""A flat config; or many at once, an array for each parameter."""


def _a_minute(values: Values) -> Any:
    return EPOCH_S


@dataclass(frozen=True)
class Problem:
    """A search space with known learning curves.

    Args:
        name: What it is called.
        about: One sentence on where it comes from and what is hard about it.
        space: What may be searched.
        objective: Metric and direction.
        max_t: Iterations of a trial that runs to its limit: the full fidelity.
        curve: Takes a flat config and an iteration from 1 to ``max_t``, and returns the metric.
        target: The value at full fidelity that one random config in a thousand reaches.
        cost_s: Takes a flat config and returns the virtual seconds of an iteration.
        held_out: Whether nothing may be tuned on it, so that it can tell whether tuning carried
            over.

    Raises:
        InvalidSettingsError: ``max_t`` is no whole number of at least 1.
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
        """Refuse bad values when made."""
        if isinstance(self.max_t, bool) or not isinstance(self.max_t, int) or self.max_t < 1:
            raise InvalidSettingsError(
                [f"max_t must be a whole number of at least 1, not {self.max_t!r}"]
            )

    def value(self, config: Mapping[str, Any], iteration: int) -> float:
        """Return the metric of a nested config after so many iterations.

        Past ``max_t`` it stays what it is there.
        """
        values = flat(config, self.space.parameters)
        return float(self.curve(values, min(iteration, self.max_t)))

    def seconds(self, config: Mapping[str, Any]) -> float:
        """Return the virtual seconds that an iteration of a nested config takes."""
        return float(self.cost_s(flat(config, self.space.parameters)))

    def is_met(self, value: float) -> bool:
        """Return whether a value at full fidelity is among the best 0.1 %."""
        return not self.objective.better(self.target, value)
