"""State of an object as pickled attributes and slots."""

import pickle
from typing import Any

from ray import cloudpickle

from tune_tf.errors import InvalidSettingsError

Parts = tuple[dict[str, Any], dict[str, Any]]
"""An object's attributes, and what its class has in slots."""


def parts_of(state: Any) -> Parts:
    """Return the parts of what an object's ``__getstate__`` returns."""
    attributes, slots = state if isinstance(state, tuple) else (state, None)
    return dict(attributes), dict(slots or {})


def pickled(parts: Parts, owner: str) -> bytes:
    """Return the parts of an object's state pickled.

    Args:
        parts: The parts.
        owner: Name of the object's class.

    Raises:
        InvalidSettingsError: An attribute cannot be pickled; names it.
    """
    try:
        return bytes(cloudpickle.dumps(parts))
    except (TypeError, AttributeError, pickle.PicklingError):
        for name, value in (parts[0] | parts[1]).items():
            _check(name, value, owner)
        raise


def _check(name: str, value: Any, owner: str) -> None:
    try:
        cloudpickle.dumps(value)
    except Exception as error:
        raise InvalidSettingsError(
            [
                (
                    f"attribute {name} of {owner} cannot be saved: {error}; leave it out of what "
                    f"{owner}.__getstate__ returns, or make it picklable"
                )
            ]
        ) from error
