"""What the sections that become value objects have in common."""

from collections.abc import Iterable, Mapping
from typing import Any

from tune_tf.config.error_text import shortened, unknown_key
from tune_tf.errors import InvalidSettingsError


def keys_of(value: object, known: tuple[str, ...]) -> dict[str, Any]:
    """Return a section of value-object settings, after refusing unknown keys."""
    if not isinstance(value, Mapping):
        raise InvalidSettingsError(
            [f"must be a mapping of {', '.join(known)}, not {shortened(value)}"]
        )
    faults = [unknown_key(key, known) for key in value if key not in known]
    if faults:
        raise InvalidSettingsError(faults)
    return dict(value)


def object_schema(properties: Mapping[str, Any], required: Iterable[str] = ()) -> dict[str, Any]:
    """Return the JSON schema of a section that becomes a value object."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }
