"""Pickled state of an object with attributes and slots."""

import pickle
from typing import Any

from ray import cloudpickle

from tune_tf.errors import InvalidSettingsError

StateParts = tuple[dict[str, Any], dict[str, Any]]
"""An object's attributes, and what its class has in slots."""


def split_state(state: Any) -> StateParts:
    """Split the result of ``__getstate__`` into attributes and slots."""
    attributes, slots = state if isinstance(state, tuple) else (state, None)
    return dict(attributes), dict(slots or {})


def pickle_state(parts: StateParts, owner: str) -> bytes:
    """Pickle an object's attributes and slots.

    Args:
        parts: Attributes and slots.
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
                    f"attribute {name} of {owner} cannot be saved: {error}; exclude it from "
                    f"{owner}.__getstate__, or make it picklable"
                )
            ]
        ) from error
