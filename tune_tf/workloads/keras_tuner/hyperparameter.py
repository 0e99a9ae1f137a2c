"""KerasTuner hyperparameter as a search space parameter."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tune_tf.errors import ErrorDetail, InvalidSettingsError
from tune_tf.space import Choice, Constant, Float, Int, Parameter

HyperparameterConditions = tuple[tuple[str, tuple[Any, ...]], ...]
"""Names of hyperparameters, outermost scope first, each with its allowed values."""

HyperparameterKey = tuple[str, HyperparameterConditions]
"""Identifier of a hyperparameter: its name may occur in several scopes."""

HyperparameterValues = Mapping[str, Any]
"""Values by hyperparameter name."""

_MAX_LISTED = 64
"""Maximum size of an integer range whose values are all probed."""


@dataclass(frozen=True)
class Hyperparameter:
    """Hyperparameter that a build declares.

    Args:
        name: Name with name scopes, as in ``HyperParameters.values``.
        conditions: The conditional scopes around it.
        parameter: Its values, without a condition.
        record: Its serialised form for ``HyperParameters.from_config``.
    """

    name: str
    conditions: HyperparameterConditions
    parameter: Parameter
    default: Any
    record: Mapping[str, Any]

    @classmethod
    def of(cls, hp: Any, record: Mapping[str, Any]) -> "Hyperparameter":
        """Convert an entry of ``HyperParameters.space``.

        ``record`` is its entry in ``HyperParameters.get_config()["space"]``.

        Raises:
            InvalidSettingsError: It has no counterpart.
        """
        conditions = tuple((each.name, tuple(each.values)) for each in hp.conditions)
        return cls(hp.name, conditions, _parameter(hp), hp.default, record)

    @property
    def key(self) -> HyperparameterKey:
        """Identifier of the hyperparameter."""
        return self.name, self.conditions

    @property
    def parents(self) -> tuple[tuple[HyperparameterKey, tuple[Any, ...]], ...]:
        """Hyperparameters that it depends on, with their allowed values.

        KerasTuner requires that the parent of a scope is declared in the scopes around it.
        """
        return tuple(
            ((name, self.conditions[:depth]), values)
            for depth, (name, values) in enumerate(self.conditions)
        )

    def active(self, values: HyperparameterValues) -> bool:
        """Return whether all its scopes are active."""
        return all(name in values and values[name] in those for name, those in self.conditions)

    @property
    def ends(self) -> tuple[Any, ...]:
        """All options, or the two ends of a range."""
        match self.parameter:
            case Choice(options):
                return tuple(options)
            case Float(low, high) | Int(low, high):
                return (low, high) if low < high else (low,)
            case Constant(value):
                return (value,)
        raise TypeError(f"{type(self.parameter).__name__} does not come from a hyperparameter")

    @property
    def all_values(self) -> tuple[Any, ...] | None:
        """All values; None if there are too many to probe each."""
        match self.parameter:
            case Int(low, high, step=step):
                listed = range(low, high + 1, step)
                return tuple(listed) if len(listed) <= _MAX_LISTED else None
            case Float(low, high):
                return None if low < high else (low,)
        return self.ends


def _parameter(hp: Any) -> Parameter:
    from keras_tuner.engine import hyperparameters as kinds  # late: loads TensorFlow

    if isinstance(hp, kinds.Fixed):
        return Constant(hp.value)
    if isinstance(hp, kinds.Boolean):
        return Choice([True, False])
    if isinstance(hp, kinds.Choice):
        return Choice(list(dict.fromkeys(hp.values)))
    if isinstance(hp, kinds.Int | kinds.Float):
        return _range(hp, whole=isinstance(hp, kinds.Int))
    text = (
        f"hyperparameters of the class {type(hp).__name__} have no counterpart: use hp.Int, "
        "hp.Float, hp.Choice, hp.Boolean or hp.Fixed"
    )
    raise InvalidSettingsError([ErrorDetail(hp.name, text)])


def _range(hp: Any, *, whole: bool) -> Parameter:
    """Convert an ``hp.Int`` or ``hp.Float``.

    KerasTuner documents ``max_value`` of a stepped float as included, but its samplers miss it if
    ``(max_value - min_value) // step`` rounds down (0 to 1 by 0.2). Here it is included.
    """
    make: Any = Int if whole else Float
    low, high, step = hp.min_value, hp.max_value, hp.step
    if hp.sampling != "linear" and step is not None:
        # Powers of a step cannot be expressed as a range.
        return Choice(list(dict.fromkeys(int(v) if whole else float(v) for v in hp.values)))
    if hp.sampling == "reverse_log":
        warnings.warn(
            f"hyperparameter {hp.name!r}: sampling='reverse_log' is searched uniformly from {low} "
            f"to {high}, which holds the same values; 'log' and 'linear' are searched as declared",
            stacklevel=2,
        )
    if step is None or low == high:
        return make(low, high, log=hp.sampling == "log")
    num_steps = int((high - low) / step + 1e-9)
    if num_steps == 0:
        return make(low, low)
    return make(low, low + num_steps * step, step=step)
