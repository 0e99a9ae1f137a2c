"""Parsing and schema of sections that become value objects."""

from collections.abc import Iterable, Mapping
from typing import Any

from tune_tf.config.error_text import short_repr, unknown_key
from tune_tf.errors import InvalidSettingsError


def section_settings(value: object, known: tuple[str, ...]) -> dict[str, Any]:
    """Return the settings of a section; refuse unknown keys."""
    if not isinstance(value, Mapping):
        raise InvalidSettingsError(
            [f"must be a mapping of {', '.join(known)}, not {short_repr(value)}"]
        )
    errors = [unknown_key(key, known) for key in value if key not in known]
    if errors:
        raise InvalidSettingsError(errors)
    return dict(value)


def object_schema(properties: Mapping[str, Any], required: Iterable[str] = ()) -> dict[str, Any]:
    """Return the JSON schema of a section."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }
