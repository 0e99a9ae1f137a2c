"""Sections of a sweep file that become value objects."""

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

from tune_tf.config.error_text import short_repr
from tune_tf.config.value_section import object_schema, section_settings
from tune_tf.constraint import Constraint
from tune_tf.errors import ErrorDetail, InvalidSettingsError
from tune_tf.objective import Objective
from tune_tf.resources import TrialResources
from tune_tf.space import SearchSpace
from tune_tf.space.declaration import DECLARATION_KINDS
from tune_tf.space.frozen import FrozenMapping
from tune_tf.validation import Validation


def _objectives(value: object) -> Objective | tuple[Objective, ...]:
    """Parse one objective, or several with different metrics."""
    if not isinstance(value, list | tuple):
        return _objective(value)
    errors: list[ErrorDetail] = []
    made: list[Objective] = []
    for index, each in enumerate(value):
        try:
            made.append(_objective(each))
        except InvalidSettingsError as error:
            errors += [
                ErrorDetail(f"{index}.{detail.where}" if detail.where else str(index), detail.what)
                for detail in error.details
            ]
    if not value:
        errors.append(ErrorDetail("", "is an empty list: give at least one metric and mode"))
    metrics = [each.metric for each in made]
    errors += [
        ErrorDetail("", f"names the metric {metric!r} twice: leave one of them out")
        for metric in sorted({metric for metric in metrics if metrics.count(metric) > 1})
    ]
    if errors:
        raise InvalidSettingsError(errors)
    return made[0] if len(made) == 1 else tuple(made)


def _objective(value: object) -> Objective:
    if isinstance(value, Objective):
        return value
    settings = section_settings(value, ("metric", "mode"))
    missing = [
        ErrorDetail(key, f"is missing: give {what}")
        for key, what in {"metric": "the metric that trials report", "mode": "min or max"}.items()
        if key not in settings
    ]
    if missing:
        raise InvalidSettingsError(missing)
    return Objective(**settings)


def _constraints(value: object) -> tuple[Constraint, ...]:
    return value if isinstance(value, tuple) else Constraint.from_dict(value)  # type: ignore[arg-type]


def _bounds(constraints: tuple[Constraint, ...]) -> dict[str, Any]:
    found: dict[str, list[str]] = {}
    for each in constraints:
        found.setdefault(each.metric, []).append(f"{each.relation} {each.bound!r}")
    return {metric: texts[0] if len(texts) == 1 else texts for metric, texts in found.items()}


def _space(value: object) -> SearchSpace:
    return value if isinstance(value, SearchSpace) else SearchSpace.from_dict(value)  # type: ignore[arg-type]


def _resources(value: object) -> TrialResources | None:
    if value is None or isinstance(value, TrialResources):
        return value
    return TrialResources(**section_settings(value, ("cpus", "gpus")))


def _name(value: object) -> str:
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", value):
        return value
    text = (
        "must be letters, digits, '.', '_' and '-', starting with a letter or digit (it names a "
        f"folder), not {short_repr(value)}"
    )
    raise ValueError(text)


def _reference(value: object) -> str:
    if isinstance(value, str):
        place, colon, attribute = value.rpartition(":")
        module = all(part.isidentifier() for part in place.split("."))
        if colon and attribute.isidentifier() and (module or place.endswith(".py")):
            return value
    text = f"must be module:attribute or path/to/file.py:Class, not {short_repr(value)}"
    raise ValueError(text)


def _data(value: object) -> FrozenMapping[Any] | None:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise ValueError(
            f"must be a mapping of the workload's settings, like {{path: wine.csv}}, not "
            f"{short_repr(value)}"
        )
    wrong = [key for key in value if not isinstance(key, str)]
    if wrong:
        raise ValueError(f"must have names as keys, not {short_repr(wrong[0])}: put it in quotes")
    return FrozenMapping(value)


def _validation(value: object) -> Validation:
    return (
        value
        if isinstance(value, Validation)
        else Validation(**section_settings(value, ("asynchronous",)))
    )


_NUMBERS = {"type": "array", "items": {"type": "number"}, "minItems": 2}
_SPACE_SCHEMA = {
    "type": "object",
    "description": "Parameter by name; a mapping without a kind is a group, a value a constant.",
    "additionalProperties": {
        "anyOf": [
            {
                "type": "object",
                "properties": {
                    **{
                        kind: _NUMBERS
                        for kind in DECLARATION_KINDS
                        if kind not in ("choice", "constant")
                    },
                    "choice": {"type": "array", "minItems": 1},
                    "constant": {},
                    "when": {"type": "object"},
                },
            },
            {"type": ["array", "boolean", "null", "number", "string"]},
        ]
    },
}


_OBJECTIVE_SCHEMA = object_schema(
    {"metric": {"type": "string"}, "mode": {"enum": ["min", "max"]}}, ["metric", "mode"]
)
_OBJECTIVES_SCHEMA = {
    "anyOf": [_OBJECTIVE_SCHEMA, {"type": "array", "items": _OBJECTIVE_SCHEMA, "minItems": 1}]
}
_RESOURCES_SCHEMA = {
    "anyOf": [
        object_schema({"cpus": {"type": "integer", "minimum": 1}, "gpus": {"type": "number"}}),
        {"type": "null"},
    ]
}


SweepName = Annotated[str, PlainValidator(_name), WithJsonSchema({"type": "string"})]
"""Name that is valid for a folder."""

WorkloadReference = Annotated[str, PlainValidator(_reference), WithJsonSchema({"type": "string"})]
"""Reference for :func:`~tune_tf.config.workload_reference.import_workload`."""


DataSection = Annotated[
    FrozenMapping[Any] | None,
    PlainValidator(_data),
    PlainSerializer(lambda it: None if it is None else dict(it)),
    WithJsonSchema(
        {
            "anyOf": [{"type": "object"}, {"type": "null"}],
            "description": "Settings of the workload; relative paths are relative to this file.",
        }
    ),
]
"""Settings that the workload checks itself; None for none."""


def _plain(objective: Objective | tuple[Objective, ...]) -> Any:
    if isinstance(objective, Objective):
        return {"metric": objective.metric, "mode": objective.mode}
    return [_plain(each) for each in objective]


ObjectiveSection = Annotated[
    Objective | tuple[Objective, ...],
    PlainValidator(_objectives),
    PlainSerializer(_plain),
    WithJsonSchema(_OBJECTIVES_SCHEMA),
]

ConstraintsSection = Annotated[
    tuple[Constraint, ...],
    PlainValidator(_constraints),
    PlainSerializer(_bounds),
    WithJsonSchema(
        {
            "type": "object",
            "additionalProperties": {
                "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]
            },
        }
    ),
]

SpaceSection = Annotated[
    SearchSpace,
    PlainValidator(_space),
    PlainSerializer(lambda it: it.to_dict()),
    WithJsonSchema(_SPACE_SCHEMA),
]

ResourcesSection = Annotated[
    TrialResources | None,
    PlainValidator(_resources),
    PlainSerializer(lambda it: it and {"cpus": it.cpus, "gpus": it.gpus}),
    WithJsonSchema(_RESOURCES_SCHEMA),
]

ValidationSection = Annotated[
    Validation,
    PlainValidator(_validation),
    PlainSerializer(lambda it: {"asynchronous": it.asynchronous}),
    WithJsonSchema(object_schema({"asynchronous": {"type": "boolean"}})),
]
