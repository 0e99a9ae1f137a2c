"""Parallelism section of a sweep file."""

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Annotated, Any, Final, get_args

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

from tune_tf.config.sections import field_schema, object_schema, section_settings
from tune_tf.errors import ErrorDetail, InvalidSettingsError, did_you_mean, one_of
from tune_tf.parallelism import (
    Asynchronous,
    Ensemble,
    Folds,
    Hybrid,
    Mirrored,
    ModelParallel,
    MultiWorker,
    Parallelism,
)

_KINDS: dict[str, type[Parallelism]] = {each.kind: each for each in get_args(Parallelism)}

_IN_SCHEMA = (Mirrored, MultiWorker, ModelParallel, Asynchronous, Folds, Hybrid, Ensemble)
"""Kinds in the order of the schema file."""

_MINIMUM: Final = {
    (MultiWorker, "num_workers"): 2,
    (Folds, "num_folds"): 2,
    (Folds, "task_retries"): 0,
    (Ensemble, "num_members"): 2,
    (Ensemble, "task_retries"): 0,
    (Asynchronous, "server_cpus"): 0,
    (Asynchronous, "max_replacements"): 0,
}
"""Smallest value of an integer; 1 for all others."""


def _parallelism(value: object) -> Parallelism:
    if isinstance(value, Parallelism):
        return value
    kind = value.get("kind", Mirrored.kind) if isinstance(value, Mapping) else Mirrored.kind
    made = _KINDS.get(kind) if isinstance(kind, str) else None
    if made is None:
        kinds = list(_KINDS)
        text = f"must be {one_of(kinds)}, not {kind!r}{did_you_mean(kind, kinds)}"
        raise InvalidSettingsError([ErrorDetail("kind", text)])
    settings = section_settings(value, ("kind", *(field.name for field in fields(made))))
    settings.pop("kind", None)
    return made(**settings)


def _plain_parallelism(parallelism: Parallelism) -> dict[str, Any]:
    return {"kind": parallelism.kind, **asdict(parallelism)}


def _schema(kind: type[Parallelism]) -> dict[str, Any]:
    own = kind.__annotations__
    in_order = sorted(fields(kind), key=lambda field: field.name not in own)  # inherited ones last
    properties = {
        field.name: field_schema(field.type, _MINIMUM.get((kind, field.name), 1))
        for field in in_order
    }
    required = [] if kind is Mirrored else ["kind"]
    return object_schema({"kind": {"const": kind.kind}, **properties}, required)


ParallelismSection = Annotated[
    Parallelism,
    PlainValidator(_parallelism),
    PlainSerializer(_plain_parallelism),
    WithJsonSchema({"anyOf": [_schema(each) for each in _IN_SCHEMA]}),
]
