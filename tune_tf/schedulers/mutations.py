"""Mutable parameters of population based training, in Ray's terms."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tune_tf.errors import ErrorDetail, InvalidSettingsError, did_you_mean
from tune_tf.space import Choice, Constant, Float, Int, Parameter, SearchSpace, nest
from tune_tf.space.paths import SEPARATOR, slashed


@dataclass(frozen=True)
class Mutations:
    """Parameters that change while trials run."""

    parameters: Mapping[str, Parameter]

    def to_ray(self) -> dict[str, Any]:
        """Return the nested ``hyperparam_mutations`` of Ray's PBT.

        A choice becomes a list: Ray moves to a neighbouring option of a list, and would multiply
        the value of a ``tune.choice``. A range becomes a function that draws from it.
        """
        rng = np.random.default_rng()
        return nest(
            {
                path: list(each.options) if isinstance(each, Choice) else partial(each.draw, rng)
                for path, each in self.parameters.items()
            }
        )

    def to_bounds(self) -> dict[str, Any]:
        """Return the nested ``hyperparam_bounds`` of Ray's PB2.

        PB2 rounds values to single precision, so the bounds are the outermost single-precision
        numbers within the range.
        """
        return nest(
            {
                path: [_round_inward(each.low, each.high), _round_inward(each.high, each.low)]
                for path, each in self.parameters.items()
                if isinstance(each, Float | Int)
            }
        )

    def clip(self, config: dict[str, Any]) -> dict[str, Any]:
        """Return a config whose mutated values are moved back into their ranges.

        Ray multiplies values regardless of range and step.
        """
        for path, parameter in self.parameters.items():
            *groups, name = path.split(SEPARATOR)
            group = config
            for each in groups:
                group = group[each]
            group[name] = nearest_value(parameter, group[name])
        return config


def select_mutations(
    names: Iterable[str] | None,
    space: SearchSpace | None,
    find_refusal: Callable[[Parameter], str | None],
    scheduler: str,
) -> Mutations:
    """Return the parameters of a space that are to change.

    Args:
        names: Their paths, with dots or slashes; None for all mutable ones.
        space: The search space.
        find_refusal: Returns why a parameter cannot change, or None if it can.
        scheduler: Name of the scheduler, for the errors.

    Raises:
        InvalidSettingsError: They cannot change, or there are none; lists all errors.
    """
    if space is None:
        text = (
            f"{scheduler} changes parameters while trials run: pass the search space as space=..."
        )
        raise InvalidSettingsError(ErrorDetail("space", text))
    if names is None:
        refusals = {path: find_refusal(each) for path, each in space.parameters.items()}
        if all(refusals.values()):
            reasons = ", ".join(f"{path} {reason}" for path, reason in refusals.items())
            text = f"there is no parameter that {scheduler} can change: {reasons}"
            raise InvalidSettingsError(ErrorDetail("mutations", text))
        return Mutations({path: space.parameters[path] for path in refusals if not refusals[path]})
    parameters, errors = {}, []
    for path in map(slashed, names):
        if path not in space.parameters:
            text = f"{path!r} is not in the search space{did_you_mean(path, space.parameters)}"
            errors.append(
                ErrorDetail("mutations", f"{text}; it contains {', '.join(space.parameters)}")
            )
        elif reason := find_refusal(space.parameters[path]):
            errors.append(ErrorDetail("mutations", f"{path} {reason}: leave it out"))
        else:
            parameters[path] = space.parameters[path]
    if errors:
        raise InvalidSettingsError(errors)
    return Mutations(parameters)


def pbt_refusal(parameter: Parameter) -> str | None:
    """Return why PBT cannot change a parameter, or None if it can."""
    if isinstance(parameter, Constant):
        return "is a constant"
    if parameter.when is not None:
        return "is conditional, so the trial it is taken from may lack it"
    return None


def pb2_refusal(parameter: Parameter) -> str | None:
    """Return why PB2 cannot change a parameter, or None if it can."""
    if reason := pbt_refusal(parameter):
        return reason
    if isinstance(parameter, Choice):
        return "is a choice, and pb2 needs a range of numbers; pbt can change it"
    if not isinstance(parameter, Float | Int):
        return f"is a {type(parameter).__name__}, and pb2 needs a range of numbers"
    if parameter.step not in (None, 1):
        return "has a step, and pb2 needs a continuous range; pbt can change it"
    return "has only one value" if parameter.low == parameter.high else None


def nearest_value(parameter: Parameter, value: Any) -> Any:
    """Return the value of a range nearest to a number; leave options of a choice as is."""
    if not isinstance(parameter, Float | Int):
        return value
    if parameter.step and parameter.step != 1:
        num_steps = round((value - parameter.low) / parameter.step)
        value = parameter.low + min(max(num_steps, 0), parameter.num_steps) * parameter.step
    return type(parameter.low)(min(max(value, parameter.low), parameter.high))


def _round_inward(end: float, other: float) -> float:
    """Return the single-precision number within a range that is nearest to one end."""
    rounded = np.float32(end)
    outside = float(rounded) < end if end < other else float(rounded) > end
    return float(np.nextafter(rounded, np.float32(other)) if outside else rounded)
