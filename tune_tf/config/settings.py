"""Base class of settings: errors without pydantic's terms, and a JSON schema for editors."""

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, ValidationError
from pydantic_core import CoreSchema, ErrorDetails

from tune_tf.config.hints import line_for
from tune_tf.errors import ErrorDetail, InvalidSettingsError, did_you_mean
from tune_tf.space.document import YamlDocument

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_ARGUMENT = re.compile(r"^(\w+): ", re.MULTILINE)
_EXAMPLE = re.compile(r" Example: ``(.+)``\.$")


class Settings(BaseModel):
    """Frozen settings that raise :class:`InvalidSettingsError` for invalid values."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, validate_default=True, allow_inf_nan=False
    )

    main_setting: ClassVar[str] = ""
    """Setting that a plain value in place of a section is meant for."""

    def __init__(self, **settings: Any) -> None:
        """Validate the values."""
        try:
            super().__init__(**settings)
        except ValidationError as error:
            raise InvalidSettingsError(self._details(error)) from None

    @classmethod
    def _details(cls, error: ValidationError) -> Iterator[ErrorDetail]:
        """Convert a validation error of pydantic to error details."""
        for failure in error.errors(include_url=False):
            where = ".".join(str(part) for part in failure["loc"])
            cause = failure.get("ctx", {}).get("error")
            if isinstance(cause, InvalidSettingsError):
                yield from (detail.within(where) for detail in cause.details)
            elif failure["type"] == "extra_forbidden":
                yield cls._unknown_key_error(where, failure["input"])
            else:
                yield ErrorDetail(where, _explanation(where, failure))

    @classmethod
    def _unknown_key_error(cls, key: str, value: Any) -> ErrorDetail:
        return unknown_key_error(key, cls.model_fields, line_for(key, value, cls.model_fields))

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> Self:
        """Parse plain data; the error lists all mistakes, each with its dotted path."""
        if not isinstance(settings, Mapping):
            text = f"must be a mapping of settings, not {short_repr(settings)}"
            if settings is False:
                text += ": write `null` for none"
            elif settings is True:
                text += ": leave it out for the default"
            elif cls._takes(settings):
                text += f": write `{{{cls.main_setting}: {settings}}}`"
            raise InvalidSettingsError(text)
        return cls(**{str(key): value for key, value in settings.items()})

    @classmethod
    def _takes(cls, value: Any) -> bool:
        """Return whether the main setting may be a plain value."""
        kind = cls.main_setting and cls.model_fields[cls.main_setting].annotation
        return isinstance(value, int if kind is int else str) and bool(kind)

    @classmethod
    def section(cls, value: Any) -> Any:
        """Convert a section of a sweep file to settings; keep existing settings."""
        return value if isinstance(value, cls) else cls.from_dict(value)

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """Return the JSON schema, with the descriptions of settings beside each, for editors."""
        return {"$schema": _DIALECT, **cls.model_json_schema()}

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Describe each setting."""
        schema = handler(core_schema)
        describe_settings(handler.resolve_ref_schema(schema), cls)
        return schema


def short_repr(value: object) -> str:
    """Return a shortened ``repr`` for an error message; an empty YAML value is called nothing."""
    if value is None:
        return "nothing (null)"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def unknown_key_error(key: object, known: Iterable[str], line: str | None = None) -> ErrorDetail:
    """Return the error of an unknown key, with the line to write in its place or the known keys."""
    known = list(known)
    if line is not None:
        return ErrorDetail(str(key), f"unknown key: write `{line}`")
    text = f"unknown key{did_you_mean(key, known)}; known keys are {', '.join(known)}"
    return ErrorDetail(str(key), f"{text}; `tune-tf init --schema` explains them")


_RULES = {
    "int_type": "must be an integer, not {value}",
    "int_from_float": "must be an integer, not {value}",
    "float_type": "must be a number, not {value}",
    "finite_number": "must be a finite number, not {value}",
    "string_type": "must be text, not {value}: put it in quotes",
    "bool_type": "must be true or false, not {value}",
    "greater_than_equal": "must be at least {ge}, not {value}",
    "greater_than": "must be more than {gt}, not {value}",
    "less_than_equal": "must be at most {le:g}, not {value}",
    "tuple_type": "must be a list, not {value}",
    "too_short": "must hold something, not {value}: leave it out for the default",
    "literal_error": "must be {expected}, not {value}",
    **dict.fromkeys(
        ("model_type", "model_attributes_type", "dict_type"),
        "must be a mapping of settings, not {value}",
    ),
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


def _explanation(where: str, failure: ErrorDetails) -> str:
    """Return the rule, the value and the remedy of an error of pydantic."""
    kind, value, context = failure["type"], failure["input"], failure.get("ctx", {})
    if kind == "missing":
        return _MISSING.get(where, "is missing")
    if kind not in _RULES:
        return str(context.get("error") or f"{failure['msg']}: {short_repr(value)}")
    if value is None:
        return (
            f"{_RULES[kind].partition(', not ')[0]}, not nothing (null): give one, or leave it out"
        )
    text = _RULES[kind].format(value=short_repr(value), **context)
    if isinstance(value, str) and kind in _UNQUOTED:
        text += ": write it without quotes"
    allowed = re.findall(r"'([^']*)'", str(context.get("expected", "")))
    return text + did_you_mean(value, allowed)


def describe_settings(schema: dict[str, Any], kind: type) -> None:
    """Add the class docstring of settings to their JSON schema, split among the settings.

    A setting that the docstring lacks takes what a base class says of it. The text of a setting may
    end in ``Example: `` and a YAML value, which becomes an example in the schema.
    """
    properties, described = schema["properties"], set[str]()
    for owner in kind.__mro__:
        summary, _, rest = inspect.cleandoc(owner.__doc__ or "").partition("\n\nArgs:\n")
        if owner is kind:
            schema["description"] = plain_text(summary)
        _, *parts = _ARGUMENT.split(inspect.cleandoc(rest.partition("\n\n")[0]))
        for name, text in zip(parts[::2], parts[1::2], strict=True):
            if name in properties.keys() - described:
                properties[name] = {**properties[name], **_description(text)}
                described.add(name)


def _description(text: str) -> dict[str, Any]:
    """Return the description and the example in the text of a setting."""
    text = " ".join(text.split())
    example = _EXAMPLE.search(text)
    plain = {"description": plain_text(_EXAMPLE.sub("", text))}
    return (
        {**plain, "examples": [YamlDocument.parse(f"it: {example[1]}").data["it"]]}
        if example
        else plain
    )


def plain_text(text: str) -> str:
    """Return a text on one line, without Sphinx markup."""
    unmarked = re.sub(r":\w+:`~?(?:[\w.]+\.)?(\w+)`", r"\1", text)
    return " ".join(unmarked.replace("``", "").split())
