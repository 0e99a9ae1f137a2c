"""Types of the fields of a sweep file that become value objects."""

from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    ByteSize,
    Field,
    PlainSerializer,
    PlainValidator,
    TypeAdapter,
    WithJsonSchema,
)

from tune_tf.config.settings import with_rule
from tune_tf.config.stored_workload import STORED_FILE, StoredReference, is_workload
from tune_tf.constraint import Constraint
from tune_tf.errors import ErrorDetail, InvalidSettingsError, adding_errors_to, did_you_mean, one_of
from tune_tf.objective import Objective
from tune_tf.parallelism import (
    PARALLELISM_KINDS,
    Asynchronous,
    Ensemble,
    Folds,
    Hybrid,
    Mirrored,
    ModelParallel,
    MultiWorker,
    Parallelism,
)
from tune_tf.resources import TrialResources
from tune_tf.space import SearchSpace
from tune_tf.space.declaration import DECLARATIONS
from tune_tf.space.parameter import is_number
from tune_tf.validation import section, short_repr


def _parse_objectives(value: object) -> Objective | tuple[Objective, ...]:
    """Parse one objective, or several with different metrics."""
    if not isinstance(value, list | tuple):
        return section(Objective, value, "metric")
    errors: list[ErrorDetail] = []
    objectives: list[Objective] = []
    for index, each in enumerate(value):
        with adding_errors_to(errors, str(index)):
            objectives.append(section(Objective, each, "metric"))
    if not value:
        errors.append(ErrorDetail("", "is an empty list: give at least one metric and mode"))
    metrics = [objective.metric for objective in objectives]
    if len(set(metrics)) < len(metrics):
        text = f"names a metric twice: leave one of {', '.join(metrics)} out"
        errors.append(ErrorDetail("", text))
    if errors:
        raise InvalidSettingsError(errors)
    return objectives[0] if len(objectives) == 1 else tuple(objectives)


def _parse_constraints(value: object) -> tuple[Constraint, ...]:
    return value if isinstance(value, tuple) else Constraint.from_dict(value)  # type: ignore[arg-type]


def _plain_constraints(constraints: tuple[Constraint, ...]) -> dict[str, Any]:
    bounds: dict[str, list[str]] = {}
    for each in constraints:
        bounds.setdefault(each.metric, []).append(f"{each.relation} {each.bound!r}")
    return {metric: texts[0] if len(texts) == 1 else texts for metric, texts in bounds.items()}


def _parse_space(value: object) -> SearchSpace:
    space = value if isinstance(value, SearchSpace) else SearchSpace(value)  # type: ignore[arg-type]
    if not space.parameters:
        raise InvalidSettingsError(
            "has no parameter: say what to search, {learning_rate: {loguniform: [1.0e-4, 1.0e-1]}}"
        )
    return space


def _check_reference(value: object) -> str:
    if is_workload(value):
        return StoredReference.of(value)
    if isinstance(value, str):
        path, _, attribute = value.rpartition(":")
        is_module = all(part.isidentifier() for part in path.split("."))
        if attribute.isidentifier() and (is_module or path.endswith(".py") or path == STORED_FILE):
            return value
    raise ValueError(f"must be module:attribute or path/to/file.py:Class, not {short_repr(value)}")


_KINDS = {kind.kind: kind for kind in PARALLELISM_KINDS}


def _parse_parallelism(value: object) -> Parallelism:
    if isinstance(value, Parallelism):
        return value
    if not isinstance(value, Mapping):
        return section(Mirrored, value, "num_replicas" if is_number(value) else "kind")
    name = value.get("kind", Mirrored.kind)
    kind = _KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        text = f"must be {one_of(_KINDS)}, not {name!r}{did_you_mean(name, _KINDS)}"
        raise InvalidSettingsError(ErrorDetail("kind", text))
    return section(kind, {key: each for key, each in value.items() if key != "kind"})


SweepName = Annotated[
    str,
    Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$"),
    with_rule(
        "must be letters, digits, '.', '_' and '-', at most 200, starting with a letter or digit "
        "(it names a folder)"
    ),
]
"""Name that is valid for a folder."""

WorkloadReference = Annotated[
    str,
    PlainValidator(_check_reference),
    PlainSerializer(str),
    WithJsonSchema({"type": "string"}),
]
"""Reference for :func:`~tune_tf.config.workload_reference.import_workload`."""

DataSection = Annotated[
    dict[str, Any],
    with_rule("must be a mapping of the workload's settings by name, like {path: wine.csv}"),
]
"""Settings that the workload checks itself."""

ObjectiveSection = Annotated[
    Objective | Annotated[tuple[Objective, ...], Field(min_length=1)],
    BeforeValidator(_parse_objectives),
    PlainSerializer(
        lambda it: asdict(it) if isinstance(it, Objective) else [asdict(each) for each in it]
    ),
]

ConstraintsSection = Annotated[
    tuple[Constraint, ...],
    PlainValidator(_parse_constraints),
    PlainSerializer(_plain_constraints),
    WithJsonSchema(TypeAdapter(dict[str, str | list[str]]).json_schema()),
]

_SPACE_SCHEMA = {
    "type": "object",
    "additionalProperties": {
        "anyOf": [
            {"type": "object", "properties": DECLARATIONS},
            {"type": ["array", "boolean", "null", "number", "string"]},
        ]
    },
}

SpaceSection = Annotated[
    SearchSpace,
    PlainValidator(_parse_space),
    PlainSerializer(SearchSpace.to_dict),
    WithJsonSchema(_SPACE_SCHEMA),
]

ResourcesSection = Annotated[TrialResources, BeforeValidator(partial(section, TrialResources))]

ParallelismSection = Annotated[
    Mirrored | MultiWorker | ModelParallel | Hybrid | Asynchronous | Folds | Ensemble,
    BeforeValidator(_parse_parallelism),
    PlainSerializer(lambda it: {"kind": it.kind, **asdict(it)}),
]

KeepCheckpoints = Annotated[
    Annotated[int, Field(ge=1)] | Literal["all"],
    with_rule("must be an integer of at least 1, or all"),
]
"""How many of the best trials keep their checkpoints, or ``all``."""

NumBytes = Annotated[
    int,
    BeforeValidator(
        partial(TypeAdapter(ByteSize).validate_python, strict=True),
        json_schema_input_type=ByteSize,
    ),
    with_rule(
        "must be a number of bytes such as 0, which is no limit, or one with kB, MB, GB, TB (1 kB "
        "is 1000 bytes) or KiB, MiB, GiB, TiB, such as 2 GB"
    ),
]
"""Size in bytes, or text with a unit."""
