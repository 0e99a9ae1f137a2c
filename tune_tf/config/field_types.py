"""Types of the fields of a sweep file that become value objects."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, asdict, fields
from functools import partial
from typing import Annotated, Any, Final, Literal, TypeVar, get_args, get_origin

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

from tune_tf.config.hints import line_for
from tune_tf.config.settings import describe_settings, short_repr, unknown_key_error
from tune_tf.config.stored_workload import STORED_FILE, StoredReference, is_workload
from tune_tf.constraint import Constraint
from tune_tf.errors import ErrorDetail, InvalidSettingsError, adding_errors_to, did_you_mean, one_of
from tune_tf.objective import Objective, likely_mode
from tune_tf.parallelism import PARALLELISM_KINDS, Mirrored, Parallelism
from tune_tf.resources import TrialResources
from tune_tf.space import SearchSpace
from tune_tf.space.declaration import DECLARATIONS
from tune_tf.space.document import inline_yaml
from tune_tf.space.frozen import FrozenMapping
from tune_tf.space.parameter import is_number

Value = TypeVar("Value")


def _parse(kind: type[Value], value: object) -> Value:
    """Return a section as a value object, whose settings are its keys."""
    return value if isinstance(value, kind) else kind(**_check_keys(value, _field_names(kind)))


def _field_names(kind: type) -> list[str]:
    return [field.name for field in fields(kind)]


def _check_keys(value: object, known: Sequence[str]) -> dict[str, Any]:
    """Return the settings of a section; refuse unknown keys."""
    if not isinstance(value, Mapping):
        text = f"must be a mapping of {', '.join(known)}, not {short_repr(value)}"
        raise InvalidSettingsError(text)
    errors = [
        unknown_key_error(key, known, line_for(key, entry, known))
        for key, entry in value.items()
        if key not in known
    ]
    if errors:
        raise InvalidSettingsError(errors)
    return dict(value)


def _object_schema(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def field_schema(declared: Any, minimum: int = 1) -> dict[str, Any]:
    """Return the JSON schema of a value object's field from its type; integers have a minimum."""
    if get_origin(declared) is Annotated:
        declared, limit = get_args(declared)
        return field_schema(declared, limit.value)
    if declared == str | None:
        return {"anyOf": [field_schema(str), {"type": "null"}]}
    if declared == Mapping[str, float]:
        return {"type": "object", "additionalProperties": field_schema(float)}
    if declared is int:
        return {"type": "integer", "minimum": minimum}
    names = {bool: "boolean", float: "number", str: "string"}
    return {"type": names[declared]} if declared in names else {"enum": list(get_args(declared))}


def _schema_of(kind: type) -> dict[str, Any]:
    schema = _object_schema(
        {field.name: _with_default(field, field_schema(field.type)) for field in fields(kind)},
        [field.name for field in fields(kind) if _default_of(field) is MISSING],
    )
    describe_settings(schema, kind)
    return schema


def _with_default(field: Field[Any], schema: dict[str, Any]) -> dict[str, Any]:
    default = _default_of(field)
    return schema if default is MISSING else {**schema, "default": default}


def _default_of(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _parse_objectives(value: object) -> Objective | tuple[Objective, ...]:
    """Parse one objective, or several with different metrics."""
    if not isinstance(value, list | tuple):
        return _parse_objective(value)
    errors: list[ErrorDetail] = []
    objectives: list[Objective] = []
    for index, section in enumerate(value):
        with adding_errors_to(errors, str(index)):
            objectives.append(_parse_objective(section))
    if not value:
        errors.append(ErrorDetail("", "is an empty list: give at least one metric and mode"))
    metrics = [objective.metric for objective in objectives]
    errors += [
        ErrorDetail("", f"names the metric {metric!r} twice: leave one of them out")
        for metric in sorted({metric for metric in metrics if metrics.count(metric) > 1})
    ]
    if errors:
        raise InvalidSettingsError(errors)
    return objectives[0] if len(objectives) == 1 else tuple(objectives)


_OBJECTIVE = {"metric": "the metric that trials report", "mode": "min or max"}


def _parse_objective(value: object) -> Objective:
    if isinstance(value, Objective):
        return value
    if isinstance(value, str):
        mode = likely_mode(value) or "min"
        text = f"is the text {value!r}: write `{{metric: {value}, mode: {mode}}}`"
        raise InvalidSettingsError(text)
    settings = _check_keys(value, tuple(_OBJECTIVE))
    if missing := [key for key in _OBJECTIVE if key not in settings]:
        raise InvalidSettingsError(
            ErrorDetail(key, f"is missing: give {_OBJECTIVE[key]}") for key in missing
        )
    return Objective(**settings)


def _plain_objectives(objective: Objective | tuple[Objective, ...]) -> Any:
    if isinstance(objective, Objective):
        return asdict(objective)
    return [asdict(each) for each in objective]


def _parse_constraints(value: object) -> tuple[Constraint, ...]:
    return value if isinstance(value, tuple) else Constraint.from_dict(value)  # type: ignore[arg-type]


def _plain_constraints(constraints: tuple[Constraint, ...]) -> dict[str, Any]:
    bounds: dict[str, list[str]] = {}
    for each in constraints:
        bounds.setdefault(each.metric, []).append(f"{each.relation} {each.bound!r}")
    return {metric: texts[0] if len(texts) == 1 else texts for metric, texts in bounds.items()}


def _parse_space(value: object) -> SearchSpace:
    space = value if isinstance(value, SearchSpace) else SearchSpace.from_dict(value)  # type: ignore[arg-type]
    if not space.parameters:
        raise InvalidSettingsError(
            "has no parameter: say what to search, {learning_rate: {loguniform: [1.0e-4, 1.0e-1]}}"
        )
    return space


def _check_name(value: object) -> str:
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}", value):
        return value
    raise ValueError(
        "must be letters, digits, '.', '_' and '-', at most 200, starting with a letter or digit "
        f"(it names a folder), not {short_repr(value)}"
    )


def _check_reference(value: object) -> str:
    if is_workload(value):
        return StoredReference.of(value)  # type: ignore[arg-type]
    if isinstance(value, str):
        path, _, attribute = value.rpartition(":")
        is_module = all(part.isidentifier() for part in path.split("."))
        if attribute.isidentifier() and (is_module or path.endswith(".py") or path == STORED_FILE):
            return value
    raise ValueError(f"must be module:attribute or path/to/file.py:Class, not {short_repr(value)}")


def _parse_data(value: object) -> FrozenMapping[Any] | None:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise ValueError(
            f"must be a mapping of the workload's settings, like {{path: wine.csv}}, not "
            f"{short_repr(value)}"
        )
    for key in value:
        if not isinstance(key, str):
            raise ValueError(f"must have names as keys, not {short_repr(key)}: put it in quotes")
    return FrozenMapping(value)


_UNITS: Final[dict[str, int]] = {
    "": 1,
    "b": 1,
    **{unit: 1000**power for power, unit in enumerate(("kb", "mb", "gb", "tb"), start=1)},
    **{unit: 1024**power for power, unit in enumerate(("kib", "mib", "gib", "tib"), start=1)},
}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")


def _check_keep_checkpoints(value: object) -> int | Literal["all"]:
    if value == "all":
        return "all"
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    raise ValueError(f"must be an integer of at least 1, or all, not {short_repr(value)}")


def _parse_num_bytes(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match and match[2].lower() in _UNITS:
        return round(float(match[1]) * _UNITS[match[2].lower()])
    raise ValueError(
        "must be a number of bytes, or one with kB, MB, GB, TB (1 kB is 1000 bytes) or KiB, MiB, "
        f"GiB, TiB, such as 2 GB, not {short_repr(value)}: use 0 for no limit"
    )


_KINDS = {kind.kind: kind for kind in PARALLELISM_KINDS}


def _parse_parallelism(value: object) -> Parallelism:
    if isinstance(value, Parallelism):
        return value
    if not isinstance(value, Mapping):
        plain = is_number(value) or isinstance(value, str)
        line = {"num_replicas" if is_number(value) else "kind": value if plain else Mirrored.kind}
        text = f"must be a mapping, not {short_repr(value)}: write `{inline_yaml(line)}`"
        raise InvalidSettingsError(text)
    name = value.get("kind", Mirrored.kind)
    kind = _KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        text = f"must be {one_of(_KINDS)}, not {name!r}{did_you_mean(name, _KINDS)}"
        raise InvalidSettingsError(ErrorDetail("kind", text))
    settings = _check_keys(value, ["kind", *_field_names(kind)])
    settings.pop("kind", None)
    return kind(**settings)


def _parallelism_schema(kind: type[Parallelism]) -> dict[str, Any]:
    rules = kind.rules()
    settings = {
        each.name: _with_default(each, field_schema(rules[each.name])) for each in fields(kind)
    }
    required = [] if kind is Mirrored else ["kind"]
    schema = _object_schema({"kind": {"const": kind.kind}, **settings}, required)
    describe_settings(schema, kind)
    return schema


_SPACE_SCHEMA = {
    "type": "object",
    "additionalProperties": {
        "anyOf": [
            {
                "type": "object",
                "properties": {
                    **DECLARATIONS,
                },
            },
            {"type": ["array", "boolean", "null", "number", "string"]},
        ]
    },
}

SweepName = Annotated[str, PlainValidator(_check_name), WithJsonSchema({"type": "string"})]
"""Name that is valid for a folder."""

WorkloadReference = Annotated[
    str,
    PlainValidator(_check_reference),
    PlainSerializer(str),
    WithJsonSchema({"type": "string"}),
]
"""Reference for :func:`~tune_tf.config.workload_reference.import_workload`."""

DataSection = Annotated[
    FrozenMapping[Any] | None,
    PlainValidator(_parse_data),
    PlainSerializer(lambda it: None if it is None else dict(it)),
    WithJsonSchema({"anyOf": [{"type": "object"}, {"type": "null"}]}),
]
"""Settings that the workload checks itself; None for none."""

ObjectiveSection = Annotated[
    Objective | tuple[Objective, ...],
    PlainValidator(_parse_objectives),
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
    PlainValidator(_parse_constraints),
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
    PlainValidator(_parse_space),
    PlainSerializer(SearchSpace.to_dict),
    WithJsonSchema(_SPACE_SCHEMA),
]

ResourcesSection = Annotated[
    TrialResources,
    PlainValidator(partial(_parse, TrialResources)),
    PlainSerializer(asdict),
    WithJsonSchema(_schema_of(TrialResources)),
]

ParallelismSection = Annotated[
    Parallelism,
    PlainValidator(_parse_parallelism),
    PlainSerializer(lambda it: {"kind": it.kind, **asdict(it)}),
    WithJsonSchema({"anyOf": [_parallelism_schema(kind) for kind in PARALLELISM_KINDS]}),
]

KeepCheckpoints = Annotated[
    int | Literal["all"],
    PlainValidator(_check_keep_checkpoints),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, {"const": "all"}]}),
]
"""How many of the best trials keep their checkpoints, or ``all``."""

NumBytes = Annotated[
    int,
    PlainValidator(_parse_num_bytes),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 0},
                {"type": "string", "pattern": r"^\s*\d+(\.\d+)?\s*([kKmMgGtT]i?)?[bB]?\s*$"},
            ],
        }
    ),
]
"""Size in bytes, or text with a unit."""
