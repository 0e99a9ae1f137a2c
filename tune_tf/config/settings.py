"""Base class of settings: errors without pydantic's terms, and a JSON schema for editors."""

import inspect
import re
from collections.abc import Iterable, Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from tune_tf.errors import ErrorDetail, InvalidSettingsError, did_you_mean

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_ARGUMENT = re.compile(r"^(\w+): ", re.MULTILINE)


class Settings(BaseModel):
    """Frozen settings that raise :class:`InvalidSettingsError` for invalid values."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, validate_default=True, allow_inf_nan=False
    )

    def __init__(self, **settings: Any) -> None:
        """Validate the values."""
        try:
            super().__init__(**settings)
        except ValidationError as error:
            raise InvalidSettingsError(details_of(type(self), error)) from None

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> Self:
        """Parse plain data.

        Raises:
            InvalidSettingsError: All errors, each with its dotted path.
        """
        if not isinstance(settings, Mapping):
            raise InvalidSettingsError(
                [f"must be a mapping of settings, not {short_repr(settings)}"]
            )
        errors = [
            unknown_key_error(key, cls.model_fields) for key in settings if not isinstance(key, str)
        ]
        made = None
        try:
            made = cls(**{key: each for key, each in settings.items() if isinstance(key, str)})
        except InvalidSettingsError as error:
            errors += error.details
        if errors or made is None:
            raise InvalidSettingsError(errors)
        return made

    @classmethod
    def section(cls, value: Any) -> Any:
        """Convert a section of a sweep file to settings; keep existing settings."""
        return value if isinstance(value, cls) else cls.from_dict(value)

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """Return the JSON schema, with the descriptions of settings beside each, for editors."""
        schema = cls.model_json_schema()
        described = _with_descriptions(schema)
        if "$defs" in schema:
            sections = schema["$defs"].items()
            described["$defs"] = {name: _with_descriptions(each) for name, each in sections}
        return {"$schema": _DIALECT, **described}


def short_repr(value: object) -> str:
    """Return a shortened ``repr`` for an error message; an empty YAML value is called nothing."""
    if value is None:
        return "nothing (null)"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def unknown_key_error(key: object, known: Iterable[str]) -> ErrorDetail:
    """Return the error of an unknown key, with the known ones."""
    known = list(known)
    return ErrorDetail(
        str(key), f"unknown key{did_you_mean(key, known)}; known keys are {', '.join(known)}"
    )


_RULES = {
    "int_type": "must be an integer, not {given}",
    "int_from_float": "must be an integer, not {given}",
    "float_type": "must be a number, not {given}",
    "finite_number": "must be a finite number, not {given}",
    "string_type": "must be text, not {given}: put it in quotes",
    "bool_type": "must be true or false, not {given}",
    "greater_than_equal": "must be at least {ge}, not {given}",
    "greater_than": "must be more than {gt}, not {given}",
    "literal_error": "must be {expected}, not {given}",
}
"""Message by pydantic's error type."""

_UNQUOTED = ("int_type", "float_type", "bool_type")

_MISSING = {
    "name": "is missing: name the sweep, like digits-cnn",
    "workload": "is missing: say what to train, module:attribute or path/to/file.py:Class",
    "objective": "is missing: say what to optimize, {metric: val_accuracy, mode: max}",
    "space": "is missing: say what to search, {learning_rate: {loguniform: [1.0e-4, 1.0e-1]}}",
    "budget": "is missing: say how much to spend, {num_samples: 32}",
    "num_samples": "is missing: say how many trials to start",
    "path": "is missing: say where the data are",
    "target": "is missing: name the column to predict",
}


def details_of(settings: type[BaseModel], error: ValidationError) -> list[ErrorDetail]:
    """Convert a validation error of pydantic to error details."""
    known = tuple(settings.model_fields)
    found: list[ErrorDetail] = []
    for each in error.errors(include_url=False):
        where = ".".join(str(part) for part in each["loc"])
        context, given = each.get("ctx", {}), each["input"]
        cause = context.get("error")
        if isinstance(cause, InvalidSettingsError):
            found.extend(detail.below(where) for detail in cause.details)
        elif each["type"] == "extra_forbidden":
            found.append(unknown_key_error(where, known))
        elif each["type"] == "missing":
            found.append(ErrorDetail(where, _MISSING.get(where, "is missing")))
        elif each["type"] in ("model_type", "model_attributes_type", "dict_type"):
            found.append(
                ErrorDetail(where, f"must be a mapping of settings, not {short_repr(given)}")
            )
        elif each["type"] in _RULES:
            text = _RULES[each["type"]].format(given=short_repr(given), **context)
            if isinstance(given, str) and each["type"] in _UNQUOTED:
                text += ": write it without quotes"
            near = re.findall(r"'([^']*)'", str(context.get("expected", "")))
            found.append(ErrorDetail(where, text + (did_you_mean(given, near) if near else "")))
        else:
            found.append(
                ErrorDetail(where, str(cause) if cause else f"{each['msg']}: {short_repr(given)}")
            )
    return found


def _with_descriptions(section: Mapping[str, Any]) -> dict[str, Any]:
    summary, arguments = _parse_docstring(str(section.get("description", "")))
    described = dict(section)
    if summary:
        described["description"] = summary
    if "properties" in section:
        described["properties"] = {
            name: {"description": arguments[name], **each} if name in arguments else dict(each)
            for name, each in section["properties"].items()
        }
    return described


def _parse_docstring(text: str) -> tuple[str, dict[str, str]]:
    """Return the summary of a class docstring, and the description of each argument."""
    summary, _, rest = text.partition("\n\nArgs:\n")
    body = inspect.cleandoc(rest.partition("\n\n")[0])
    parts = _ARGUMENT.split(body)[1:]
    arguments = dict(zip(parts[::2], map(_plain_text, parts[1::2]), strict=True))
    return _plain_text(summary), arguments


def _plain_text(text: str) -> str:
    """Return a text on one line, without Sphinx markup."""
    unmarked = re.sub(r":\w+:`~?(?:[\w.]+\.)?(\w+)`", r"\1", text)
    return " ".join(unmarked.replace("``", "").split())
