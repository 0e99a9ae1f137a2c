"""Error messages for invalid settings, without pydantic's terms."""

import re
from collections.abc import Iterable

from pydantic import BaseModel, ValidationError

from tune_tf.errors import ErrorDetail, InvalidSettingsError, did_you_mean


def short_repr(value: object) -> str:
    """Return a shortened ``repr`` for an error message; an empty YAML value is called nothing."""
    if value is None:
        return "nothing (null)"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def unknown_key(key: object, known: Iterable[str]) -> ErrorDetail:
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
    "objective": "is missing: say what to optimise, {metric: val_accuracy, mode: max}",
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
            found.extend(
                ErrorDetail(".".join(filter(None, [where, detail.where])), detail.what)
                for detail in cause.details
            )
        elif each["type"] == "extra_forbidden":
            found.append(unknown_key(where, known))
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
