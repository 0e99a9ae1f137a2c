"""Sections of a sweep file that become value objects."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, asdict, fields
from functools import partial
from typing import Annotated, Any, Final, Literal, TypeVar, get_args

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

from tune_tf.config.settings import short_repr, unknown_key_error
from tune_tf.constraint import Constraint
from tune_tf.errors import ErrorDetail, InvalidSettingsError
from tune_tf.objective import Objective
from tune_tf.resources import TrialResources
from tune_tf.space import SearchSpace
from tune_tf.space.declaration import DECLARATION_KINDS
from tune_tf.space.frozen import FrozenMapping
from tune_tf.validation import Validation

Value = TypeVar("Value")


def _parse(kind: type[Value], value: object) -> Value:
    """Return a section as a value object, whose settings are its keys."""
    if isinstance(value, kind):
        return value
    return kind(**section_settings(value, [field.name for field in fields(kind)]))  # type: ignore[arg-type]


def section_settings(value: object, known: Iterable[str]) -> dict[str, Any]:
    """Return the settings of a section; refuse unknown keys."""
    known = list(known)
    if not isinstance(value, Mapping):
        raise InvalidSettingsError(
            [f"must be a mapping of {', '.join(known)}, not {short_repr(value)}"]
        )
    if errors := [unknown_key_error(key, known) for key in value if key not in known]:
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


def field_schema(declared: Any, minimum: int = 1) -> dict[str, Any]:
    """Return the JSON schema of a value object's field from its type; integers have a minimum."""
    if declared == int | None:
        return {"anyOf": [field_schema(int, minimum), {"type": "null"}]}
    if declared is int:
        return {"type": "integer", "minimum": minimum}
    names = {bool: "boolean", float: "number", str: "string"}
    return {"type": names[declared]} if declared in names else {"enum": list(get_args(declared))}


def _schema_of(kind: type) -> dict[str, Any]:
    return object_schema(
        {field.name: field_schema(field.type) for field in fields(kind)},
        [field.name for field in fields(kind) if field.default is MISSING],
    )


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
            errors += [detail.below(index) for detail in error.details]
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
    if not isinstance(value, Objective):
        settings = section_settings(value, ("metric", "mode"))
        wanted = {"metric": "the metric that trials report", "mode": "min or max"}
        missing = [
            ErrorDetail(key, f"is missing: give {what}")
            for key, what in wanted.items()
            if key not in settings
        ]
        if missing:
            raise InvalidSettingsError(missing)
    return _parse(Objective, value)


def _plain_objectives(objective: Objective | tuple[Objective, ...]) -> Any:
    if isinstance(objective, Objective):
        return asdict(objective)
    return [asdict(each) for each in objective]


def _constraints(value: object) -> tuple[Constraint, ...]:
    return value if isinstance(value, tuple) else Constraint.from_dict(value)  # type: ignore[arg-type]


def _plain_constraints(constraints: tuple[Constraint, ...]) -> dict[str, Any]:
    found: dict[str, list[str]] = {}
    for each in constraints:
        found.setdefault(each.metric, []).append(f"{each.relation} {each.bound!r}")
    return {metric: texts[0] if len(texts) == 1 else texts for metric, texts in found.items()}


def _space(value: object) -> SearchSpace:
    return value if isinstance(value, SearchSpace) else SearchSpace.from_dict(value)  # type: ignore[arg-type]


def _resources(value: object) -> TrialResources | None:
    return None if value is None else _parse(TrialResources, value)


def _name(value: object) -> str:
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", value):
        return value
    raise ValueError(
        "must be letters, digits, '.', '_' and '-', starting with a letter or digit (it names a "
        f"folder), not {short_repr(value)}"
    )


def _reference(value: object) -> str:
    if isinstance(value, str):
        place, colon, attribute = value.rpartition(":")
        module = all(part.isidentifier() for part in place.split("."))
        if colon and attribute.isidentifier() and (module or place.endswith(".py")):
            return value
    raise ValueError(f"must be module:attribute or path/to/file.py:Class, not {short_repr(value)}")


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


_UNITS: Final[dict[str, int]] = {
    "": 1,
    "b": 1,
    **{unit: 1000**power for power, unit in enumerate(("kb", "mb", "gb", "tb"), start=1)},
    **{unit: 1024**power for power, unit in enumerate(("kib", "mib", "gib", "tib"), start=1)},
}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")


def _num_kept(value: object) -> int | Literal["all"]:
    if value == "all":
        return "all"
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    raise ValueError(f"must be an integer of at least 1, or all, not {short_repr(value)}")


def _num_bytes(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match and match[2].lower() in _UNITS:
        return round(float(match[1]) * _UNITS[match[2].lower()])
    raise ValueError(
        "must be a number of bytes, or one with kB, MB, GB, TB (1 kB is 1000 bytes) or KiB, MiB, "
        f"GiB, TiB, such as 2 GB, not {short_repr(value)}: use 0 for no limit"
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
                    **dict.fromkeys(DECLARATION_KINDS, _NUMBERS),
                    "choice": {"type": "array", "minItems": 1},
                    "constant": {},
                    "when": {"type": "object"},
                },
            },
            {"type": ["array", "boolean", "null", "number", "string"]},
        ]
    },
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

ObjectiveSection = Annotated[
    Objective | tuple[Objective, ...],
    PlainValidator(_objectives),
    PlainSerializer(_plain_objectives),
    WithJsonSchema(
        {
            "anyOf": [
                _schema_of(Objective),
                {"type": "array", "items": _schema_of(Objective), "minItems": 1},
            ]
        }
    ),
]

ConstraintsSection = Annotated[
    tuple[Constraint, ...],
    PlainValidator(_constraints),
    PlainSerializer(_plain_constraints),
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
    PlainSerializer(SearchSpace.to_dict),
    WithJsonSchema(_SPACE_SCHEMA),
]

ResourcesSection = Annotated[
    TrialResources | None,
    PlainValidator(_resources),
    PlainSerializer(lambda it: it and asdict(it)),
    WithJsonSchema({"anyOf": [_schema_of(TrialResources), {"type": "null"}]}),
]

ValidationSection = Annotated[
    Validation,
    PlainValidator(partial(_parse, Validation)),
    PlainSerializer(asdict),
    WithJsonSchema(_schema_of(Validation)),
]

KeepCheckpoints = Annotated[
    int | Literal["all"],
    PlainValidator(_num_kept),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, {"const": "all"}]}),
]
"""How many of the best trials keep their checkpoints, or ``all``."""

NumBytes = Annotated[
    int,
    PlainValidator(_num_bytes),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 0},
                {"type": "string", "pattern": r"^\s*\d+(\.\d+)?\s*([kKmMgGtT]i?)?[bB]?\s*$"},
            ],
            "description": "Bytes, or text such as 2 GB; 0 for no limit.",
        }
    ),
]
"""Size in bytes, or text with a unit."""
