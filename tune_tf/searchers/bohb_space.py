"""A search space in the terms of ConfigSpace, which BOHB samples from."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import FixedTrial

from tune_tf.searchers.finite import num_values, value_at
from tune_tf.searchers.suggestions import Outline, Space
from tune_tf.space import Choice, SearchSpace
from tune_tf.space.frozen import hashable
from tune_tf.space.optuna_form import OptunaSpace

if TYPE_CHECKING:
    from ConfigSpace import ConfigurationSpace
    from ConfigSpace.hyperparameters import Hyperparameter


@dataclass(frozen=True)
class BohbSpace:
    """Parameters as numbers that BOHB's kernels take, and back.

    An option is its index, and so is a value of a range with a step: nothing is lost of what
    options are, and the step is kept, which ConfigSpace does not know.

    Args:
        space: A :class:`tune_tf.SearchSpace`, or a mapping of Optuna distributions.
    """

    space: Space | Mapping[str, BaseDistribution]

    @cached_property
    def distributions(self) -> dict[str, BaseDistribution]:
        """The parameters with more than one value, by path."""
        return dict(Outline.of(self.space).distributions or {})

    @cached_property
    def names(self) -> dict[str, str]:
        """ConfigSpace's name of each parameter, by path; Ray takes a path's slash for a group."""
        return {path: f"p{index}" for index, path in enumerate(self.distributions)}

    def to_config_space(self) -> "ConfigurationSpace":
        """Return the space, with its conditions."""
        from ConfigSpace import ConfigurationSpace  # late: an optional package

        made = ConfigurationSpace()
        for path, distribution in self.distributions.items():
            made.add(_hyperparameter(self.names[path], distribution))
        if isinstance(self.space, SearchSpace):
            for path in self.distributions:
                self._add_condition(made, path, self.space)
        return made

    def encoded(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return BOHB's configuration for the parameters that Optuna stores of a trial.

        Raises:
            ValueError: An active parameter is missing, or has a value that it cannot have.
        """
        active = set(self.distributions)
        if isinstance(self.space, SearchSpace):
            active &= OptunaSpace(self.space)(FixedTrial(dict(params))).keys()
        if missing := active - params.keys():
            raise ValueError(f"{', '.join(sorted(missing))} missing")
        return {
            name: _number(self.distributions[path], params[path])
            for path, name in self.names.items()
            if path in active
        }

    def decoded(self, configuration: Mapping[str, Any]) -> dict[str, Any]:
        """Return what Optuna stores, in plain Python values, for a configuration of BOHB's."""
        return {
            path: _value(self.distributions[path], configuration[name])
            for path, name in self.names.items()
            if configuration.get(name) is not None
        }

    def _add_condition(self, made: "ConfigurationSpace", path: str, space: SearchSpace) -> None:
        from ConfigSpace import AndConjunction, InCondition  # late: an optional package

        conditions = [
            InCondition(
                made[self.names[path]],
                made[self.names[parent]],
                [self._allowed(space, parent, value) for value in allowed],
            )
            for parent, allowed in self._requirements(space, path)
        ]
        if conditions:
            made.add(AndConjunction(*conditions) if len(conditions) > 1 else conditions[0])

    def _requirements(self, space: SearchSpace, path: str) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """Yield the searched parameters that a parameter hangs on, and their values.

        A parent with one value only is not searched; what hangs on it hangs on its conditions.
        """
        for parent, allowed in space.parameters[path].condition.items():
            if parent in self.names:
                yield parent, allowed
            else:
                yield from self._requirements(space, parent)

    def _allowed(self, space: SearchSpace, path: str, value: Any) -> Any:
        """Return BOHB's number for a value in a condition."""
        parameter = space.parameters[path]
        if isinstance(parameter, Choice):
            return [hashable(option) for option in parameter.options].index(hashable(value))
        return _number(self.distributions[path], value)


def _hyperparameter(name: str, distribution: BaseDistribution) -> "Hyperparameter[Any, Any]":
    import ConfigSpace  # late: an optional package

    match distribution:
        case CategoricalDistribution(choices=choices):
            return ConfigSpace.CategoricalHyperparameter(name, list(range(len(choices))))
        case IntDistribution(low=low, high=high, step=1, log=log):
            return ConfigSpace.UniformIntegerHyperparameter(name, low, high, log=log)
        case FloatDistribution(low=low, high=high, step=None, log=log):
            return ConfigSpace.UniformFloatHyperparameter(name, low, high, log=log)
    return ConfigSpace.UniformIntegerHyperparameter(name, 0, num_values(distribution) - 1)


def _number(distribution: BaseDistribution, value: Any) -> int | float:
    match distribution:
        case CategoricalDistribution(choices=choices):
            return [hashable(choice) for choice in choices].index(hashable(value))
        case IntDistribution(low=low, high=high) | FloatDistribution(low=low, high=high):
            if not low <= value <= high:
                raise ValueError(f"{value!r} is not from {low!r} to {high!r}")
    match distribution:
        case IntDistribution(step=1):
            return int(value)
        case FloatDistribution(step=None):
            return float(value)
        case IntDistribution(low=low, step=step) | FloatDistribution(low=low, step=step):
            return round((value - low) / step)
    raise TypeError(f"{distribution!r} is not a kind of parameter that BOHB knows")


def _value(distribution: BaseDistribution, number: Any) -> Any:
    match distribution:
        case IntDistribution(step=1):
            return int(number)
        case FloatDistribution(low=low, high=high, step=None):
            # Out of its logarithm and back a number may come to lie outside.
            return min(max(float(number), low), high)
    return value_at(distribution, int(number))
