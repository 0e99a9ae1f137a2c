"""A hyperparameter as a KerasTuner build declares it."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tune_tf.errors import ErrorDetail, InvalidSettingsError
from tune_tf.space import Choice, Constant, Float, Int, Parameter

HyperparameterConditions = tuple[tuple[str, tuple[Any, ...]], ...]
"""Names of hyperparameters, outermost scope first, each with the values that it may have."""

HyperparameterKey = tuple[str, HyperparameterConditions]
"""What tells hyperparameters apart: KerasTuner lets one name stand in several scopes."""

HyperparameterValues = Mapping[str, Any]
"""Values by hyperparameter name."""

_MAX_LISTED = 64
"""Values of a whole-number range up to which each of them is looked at."""


@dataclass(frozen=True)
class Hyperparameter:
    """A hyperparameter as a build declares it.

    Args:
        name: Its name, name scopes included, as in ``HyperParameters.values``.
        conditions: The conditional scopes that it stands in.
        parameter: Its values, without a condition.
        default: The value that it has when nothing is said.
        record: What KerasTuner writes of it, for ``HyperParameters.from_config``.
    """

    name: str
    conditions: HyperparameterConditions
    parameter: Parameter
    default: Any
    record: Mapping[str, Any]

    @classmethod
    def of(cls, hp: Any, record: Mapping[str, Any]) -> "Hyperparameter":
        """Return it for one of KerasTuner's.

        Args:
            hp: An entry of ``HyperParameters.space``.
            record: The entry of ``HyperParameters.get_config()["space"]`` of the same place.

        Raises:
            InvalidSettingsError: It has no counterpart.
        """
        conditions = tuple((each.name, tuple(each.values)) for each in hp.conditions)
        return cls(hp.name, conditions, _parameter(hp), hp.default, record)

    @property
    def key(self) -> HyperparameterKey:
        """Return the key of the hyperparameter."""
        return self.name, self.conditions

    @property
    def parents(self) -> tuple[tuple[HyperparameterKey, tuple[Any, ...]], ...]:
        """Return the hyperparameters it hangs on, with the values they may have.

        A scope's parent always stands in the scopes around that scope: KerasTuner demands it.
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
        """Return all options, or the two ends of a range."""
        match self.parameter:
            case Choice(options):
                return tuple(options)
            case Float(low, high) | Int(low, high):
                return (low, high) if low < high else (low,)
            case Constant(value):
                return (value,)
        raise TypeError(f"{type(self.parameter).__name__} comes from no hyperparameter")

    @property
    def all_values(self) -> tuple[Any, ...] | None:
        """Return every value; None where there are too many to look at each."""
        match self.parameter:
            case Int(low, high, step=step):
                listed = range(low, high + 1, step)
                return tuple(listed) if len(listed) <= _MAX_LISTED else None
            case Float(low, high):
                return None if low < high else (low,)
        return self.ends


def _parameter(hp: Any) -> Parameter:
    """Return the values of one of KerasTuner's hyperparameters."""
    from keras_tuner.engine import hyperparameters as kinds  # brings in TensorFlow

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
    """Return the values of an ``hp.Int`` or ``hp.Float``, both ends included where they are.

    KerasTuner's documentation includes ``max_value`` of a stepped float; its samplers miss it
    where ``(max_value - min_value) // step`` rounds down (0 to 1 by 0.2). Here it is included.
    """
    make: Any = Int if whole else Float
    low, high, step = hp.min_value, hp.max_value, hp.step
    if hp.sampling != "linear" and step is not None:
        # Powers of a step: no range of ours has them, a list does.
        return Choice(list(dict.fromkeys(int(v) if whole else float(v) for v in hp.values)))
    if hp.sampling == "reverse_log":
        warnings.warn(
            f"hyperparameter {hp.name!r}: sampling='reverse_log' is searched evenly from {low} to "
            f"{high}, which holds the same values; with 'log' or 'linear' nothing changes",
            stacklevel=2,
        )
    if step is None or low == high:
        return make(low, high, log=hp.sampling == "log")
    num_steps = int((high - low) / step + 1e-9)
    if num_steps == 0:
        return make(low, low)
    return make(low, low + num_steps * step, step=step)
