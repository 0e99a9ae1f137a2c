"""Conditions under which parameters are active, and the dependencies that they make."""

import math
from collections.abc import Collection, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any

from tune_tf.errors import ErrorDetail, InvalidSettingsError, did_you_mean
from tune_tf.space.hashable import hashable
from tune_tf.space.paths import dotted, slashed

if TYPE_CHECKING:
    from tune_tf.space.parameter import Parameter


class Condition(dict[str, tuple[Any, ...]]):
    """Values of other parameters, all of which must hold for a parameter to be active.

    Args:
        when: Path of a parameter, from the root, to its required value or a list of allowed values:
            ``{"optimizer": "sgd"}``, ``{"model/depth": [3, 4]}``. ``model.depth`` works too. A
            value that is itself a list must be in a list.

    Raises:
        InvalidSettingsError: ``when`` is not such a mapping, or allows no value.
    """

    def __init__(self, when: Mapping[str, Any]) -> None:
        if not isinstance(when, Mapping):
            raise InvalidSettingsError(
                f"must map a parameter to its value, like {{optimizer: sgd}}, not {when!r}"
            )
        errors = []
        entries: dict[str, tuple[Any, ...]] = {}
        for path, values in when.items():
            if not isinstance(path, str) or not path:
                errors.append(f"must name a parameter as text, not {path!r}")
                continue
            allowed = tuple(values) if isinstance(values, _COLLECTION_TYPES) else (values,)
            if not allowed:
                errors.append(f"allows no value of {path!r}: list one, or leave it out")
            entries[slashed(path)] = allowed
        if errors:
            raise InvalidSettingsError(errors)
        super().__init__(entries)

    def holds(self, active: Mapping[str, Any]) -> bool:
        """Return whether the condition holds for the values of active parameters by path."""
        return all(
            path in active and any(_is_equal_value(active[path], value) for value in allowed)
            for path, allowed in self.items()
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the ``when`` mapping of a sweep file."""
        return {path: list(allowed) for path, allowed in self.items()}


def _is_equal_value(value: Any, allowed: Any) -> bool:
    """Return whether two values are equal, up to the rounding of a stepped float.

    Samplers multiply steps: three of 0.1 are 0.30000000000000004.
    """
    if isinstance(value, float) and isinstance(allowed, float):
        return math.isclose(value, allowed, rel_tol=1e-9, abs_tol=1e-15)
    return hashable(value) == hashable(allowed)


_COLLECTION_TYPES = (list, tuple, set, frozenset)

ALWAYS = Condition({})
"""Condition of an unconditional parameter."""


def in_dependency_order(
    parameters: "Mapping[str, Parameter]", invalid: Collection[str] = ()
) -> "tuple[dict[str, Parameter], list[ErrorDetail]]":
    """Sort parameters stably so that each comes after those that it depends on.

    Returns:
        The parameters in order, and the errors of their conditions; those on parameters that are
        ``invalid`` for other reasons are not judged.
    """
    errors = []
    paths = [dotted(path) for path in parameters]
    for path, parameter in parameters.items():
        for parent, allowed in parameter.condition.items():
            name, texts = dotted(parent), list[str]()
            if parent in parameters:
                found = [parameters[parent].error_for(value) for value in allowed]
                texts = [f"`when` can never hold: {name!r} {text}" for text in found if text]
            elif parent not in invalid:
                known = f"{did_you_mean(name, paths)}; the parameters are {', '.join(paths)}"
                texts = [f"`when` names {name!r}, which is not a parameter{known}"]
            errors += [ErrorDetail(dotted(path), text) for text in texts]
    parents = {
        path: [parent for parent in each.condition if parent in parameters]
        for path, each in parameters.items()
    }
    try:
        TopologicalSorter(parents).prepare()
    except CycleError as error:
        cycle = [dotted(path) for path in reversed(error.args[1])]
        text = f"`when` forms a cycle, {' -> '.join(cycle)}: remove one of them"
        return {}, [*errors, ErrorDetail(cycle[0], text)]
    ordered: dict[str, Parameter] = {}

    def add(path: str) -> None:
        for parent in parents[path]:
            add(parent)
        ordered.setdefault(path, parameters[path])

    for path in parameters:
        add(path)
    return ordered, errors
