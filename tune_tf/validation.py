"""Validation by pydantic, with errors that say the value, the rule and the remedy."""

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, fields
from functools import wraps
from inspect import signature
from typing import Any, TypeVar, dataclass_transform

from pydantic import ConfigDict, GetJsonSchemaHandler, ValidationError
from pydantic.dataclasses import dataclass
from pydantic_core import CoreSchema, ErrorDetails
from ruamel.yaml import YAML

from tune_tf.errors import ErrorDetail, InvalidSettingsError, did_you_mean

Value = TypeVar("Value")

_ARGUMENT = re.compile(r"^(\w+): ", re.MULTILINE)
_EXAMPLE = re.compile(r" Example: ``(.+)``\.$")

STRICT = ConfigDict(extra="forbid", strict=True, validate_default=True, allow_inf_nan=False)
"""How values are validated: what is text is no number, and nothing unknown is accepted."""


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def validated(kind: type[Value]) -> type[Value]:
    """Make a class a frozen dataclass whose values pydantic validates by their annotations.

    Invalid values raise :class:`~tune_tf.errors.InvalidSettingsError` with all errors. The JSON
    schema has the descriptions of the docstring.
    """
    if not hasattr(kind, "__get_pydantic_json_schema__"):
        kind.__get_pydantic_json_schema__ = classmethod(described_schema)  # type: ignore[attr-defined]
    made = dataclass(frozen=True, config=STRICT)(kind)
    validate: Callable[..., None] = made.__init__
    names = [each.name for each in fields(made)]
    positional = [each.name for each in fields(made) if not each.kw_only]

    @wraps(validate)
    def init(self: Any, *values: Any, **settings: Any) -> None:
        named = dict(zip(positional, values, strict=False))
        try:
            validate(self, *values[len(named) :], **named, **settings)
        except ValidationError as error:
            raise InvalidSettingsError(error_details(error, names)) from None

    made.__init__ = init  # type: ignore[method-assign]
    return made  # type: ignore[return-value]


def section(kind: type[Value], value: Any, plain: str | None = None) -> Value:
    """Return a section of a sweep file as settings; keep existing ones.

    Args:
        kind: Class of the settings.
        value: The section.
        plain: Setting that a plain value in place of the section is meant for; None for none.
    """
    if isinstance(value, kind):
        return value
    if not isinstance(value, Mapping):
        text = f"must be a mapping of settings, not {short_repr(value)}"
        if plain and type(value) is (int if plain.startswith("num_") else str):
            text += f": write `{{{plain}: {value}}}`"
        else:
            text += f"; they are {', '.join(signature(kind).parameters)}"
        if value is None or isinstance(value, bool):
            none = ", or write `null` for none" if value is False else ""
            text += f": leave it out for the default{none}"
        raise InvalidSettingsError(text)
    return kind(**{str(key): each for key, each in value.items()})


def error_details(error: ValidationError, known: Iterable[str]) -> Iterator[ErrorDetail]:
    """Convert an error of pydantic about settings of which some are ``known``."""
    for failure in error.errors(include_url=False):
        where = ".".join(str(part) for part in failure["loc"])
        cause = failure.get("ctx", {}).get("error")
        if isinstance(cause, InvalidSettingsError):
            yield from (detail.within(where) for detail in cause.details)
        elif failure["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
            yield unknown_key_error(where, known)
        else:
            yield ErrorDetail(where, _explanation(where, failure))


def short_repr(value: object) -> str:
    """Return a shortened ``repr`` for an error message; an empty YAML value is called nothing."""
    if value is None:
        return "nothing (null)"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def unknown_key_error(key: object, known: Iterable[str]) -> ErrorDetail:
    """Return the error of an unknown key, with the known keys."""
    known = list(known)
    text = f"unknown key{did_you_mean(key, known)}; known keys are {', '.join(known)}"
    return ErrorDetail(str(key), f"{text}; `tune-tf init --schema` explains them")


_RULES = {
    "int_type": "must be an integer, not {value}",
    "int_from_float": "must be an integer, not {value}",
    "float_type": "must be a number, not {value}",
    "finite_number": "must be a finite number, not {value}",
    "string_type": "must be text, not {value}: put it in quotes",
    "string_too_short": "must not be empty, but is {value}",
    "bool_type": "must be true or false, not {value}",
    "greater_than_equal": "must be at least {ge:g}, not {value}",
    "greater_than": "must be more than {gt:g}, not {value}",
    "less_than_equal": "must be at most {le:g}, not {value}",
    "list_type": "must be a list, not {value}",
    "tuple_type": "must be a list, not {value}",
    "too_short": "must hold at least one, not {value}",
    "literal_error": "must be {expected}, not {value}",
    **dict.fromkeys(
        ("model_type", "model_attributes_type", "dict_type"),
        "must be a mapping of settings, not {value}",
    ),
}
"""Message by pydantic's error type."""

_MISSING = {
    "name": "is missing: name the sweep, like digits-cnn",
    "workload": "is missing: say what to train, module:attribute or path/to/file.py:Class",
    "objective": "is missing: say what to optimize, {metric: val_accuracy, mode: max}",
    "metric": "is missing: give the metric that trials report",
    "mode": "is missing: give min or max",
    "space": "is missing: say what to search, {learning_rate: {loguniform: [1.0e-4, 1.0e-1]}}",
    "budget": "is missing: say how much to spend, {num_samples: 32}",
    "num_samples": "is missing: say how many trials to start",
    "path": "is missing: say where the data are",
    "target": "is missing: name the column to predict",
}


def _explanation(where: str, failure: ErrorDetails) -> str:
    """Return the rule, the value and the remedy of an error of pydantic."""
    kind, value, context = failure["type"], failure["input"], failure.get("ctx", {})
    if kind in ("missing", "missing_argument"):
        return _MISSING.get(where, "is missing")
    if kind not in _RULES:
        return str(context.get("error") or f"{failure['msg']}: {short_repr(value)}")
    if value is None:
        return (
            f"{_RULES[kind].partition(', not ')[0]}, not nothing (null): give one, or leave it out"
        )
    text = _RULES[kind].format(value=short_repr(value), **context)
    if isinstance(value, str) and kind in ("int_type", "float_type", "bool_type"):
        text += ": write it without quotes"
    allowed = re.findall(r"'([^']*)'", str(context.get("expected", "")))
    return text + did_you_mean(value, allowed)


def described_schema(
    kind: type, core_schema: CoreSchema, handler: GetJsonSchemaHandler
) -> dict[str, Any]:
    """Return the JSON schema of settings with their class docstring, split among the settings.

    A setting that the docstring lacks takes what a base class says of it. The text of a setting may
    end in ``Example: `` and a YAML value, which becomes an example in the schema.
    """
    reference = handler(core_schema)
    schema = handler.resolve_ref_schema(reference)
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
    return reference


def _description(text: str) -> dict[str, Any]:
    """Return the description and the example in the text of a setting."""
    text = " ".join(text.split())
    example = _EXAMPLE.search(text)
    plain = {"description": plain_text(_EXAMPLE.sub("", text))}
    return {**plain, "examples": [YAML(typ="safe").load(example[1])]} if example else plain


def plain_text(text: str) -> str:
    """Return a text on one line, without Sphinx markup."""
    unmarked = re.sub(r":\w+:`~?(?:[\w.]+\.)?(\w+)`", r"\1", text)
    return " ".join(unmarked.replace("``", "").split())
