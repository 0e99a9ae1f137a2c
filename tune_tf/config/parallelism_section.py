"""Parallelism section of a sweep file."""

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Annotated, Any

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

from tune_tf.config.sections import object_schema, section_settings
from tune_tf.errors import ErrorDetail, InvalidSettingsError, did_you_mean, one_of
from tune_tf.parallelism import PARALLELISM_KINDS, Mirrored, Parallelism

_KINDS = {each.kind: each for each in PARALLELISM_KINDS}


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
    required = [] if kind is Mirrored else ["kind"]
    return object_schema({"kind": {"const": kind.kind}, **kind.schema()}, required)


ParallelismSection = Annotated[
    Parallelism,
    PlainValidator(_parallelism),
    PlainSerializer(_plain_parallelism),
    WithJsonSchema({"anyOf": [_schema(kind) for kind in PARALLELISM_KINDS]}),
]
