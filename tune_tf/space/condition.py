"""When a parameter is part of a config."""

import math
from collections.abc import Mapping
from typing import Any

from tune_tf.errors import ErrorDetail, InvalidSettingsError
from tune_tf.space.frozen import FrozenMapping, hashable
from tune_tf.space.paths import slashed


class Condition(FrozenMapping[tuple[Any, ...]]):
    """Values of other parameters under which a parameter is active; all must hold.

    Args:
        when: Path of a parameter, from the root, to the value or to a list of the values it may
            have: ``{"optimizer": "sgd"}``, ``{"model/depth": [3, 4]}``. ``model.depth`` is
            understood too. A value that is a list itself stands in a list.

    Raises:
        InvalidSettingsError: It is not such a mapping, or allows no value.
    """

    __slots__ = ()

    def __init__(self, when: Mapping[str, Any]) -> None:
        """Refuse bad values when made."""
        if not isinstance(when, Mapping):
            raise InvalidSettingsError(
                [f"`when` must map a parameter to its value, like {{optimizer: sgd}}, not {when!r}"]
            )
        errors = []
        entries: dict[str, tuple[Any, ...]] = {}
        for path, values in when.items():
            if not isinstance(path, str) or not path:
                errors.append(
                    ErrorDetail("", f"`when` must name a parameter by text, not {path!r}")
                )
                continue
            allowed = tuple(values) if isinstance(values, _MANY) else (values,)
            if not allowed:
                errors.append(
                    ErrorDetail(
                        "", f"`when` allows no value of {path!r}: list one, or leave it out"
                    )
                )
            entries[slashed(path)] = allowed
        if errors:
            raise InvalidSettingsError(errors)
        super().__init__(entries)

    def __reduce__(self) -> tuple[type, tuple[dict[str, tuple[Any, ...]]]]:
        """Pickle by the arguments."""
        return type(self), (dict(self),)

    def holds(self, active: Mapping[str, Any]) -> bool:
        """Return whether it holds, given the values of the active parameters by path."""
        return all(
            path in active and any(_alike(active[path], value) for value in allowed)
            for path, allowed in self.items()
        )

    def to_dict(self) -> dict[str, Any]:
        """Return it as it is written in a sweep file."""
        return {
            path: allowed[0]
            if len(allowed) == 1 and not isinstance(allowed[0], _MANY)
            else list(allowed)
            for path, allowed in self.items()
        }


def _alike(value: Any, allowed: Any) -> bool:
    """Return whether two values are the same, up to the rounding of a stepped float.

    Samplers count steps, and three of 0.1 are 0.30000000000000004.
    """
    if isinstance(value, float) and isinstance(allowed, float):
        return math.isclose(value, allowed, rel_tol=1e-9, abs_tol=1e-15)
    return hashable(value) == hashable(allowed)


_MANY = (list, tuple, set, frozenset)

ALWAYS = Condition({})
"""The condition of a parameter that every config has."""
