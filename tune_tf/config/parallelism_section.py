"""Parallelism section of a sweep file."""

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Annotated, Any, get_args

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

from tune_tf.config.value_section import object_schema, section_settings
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
    Placement,
    Uneven,
)

_KINDS: dict[str, type[Parallelism]] = {each.kind: each for each in get_args(Parallelism)}


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


_COUNT = {"type": "integer", "minimum": 1}
_COUNT_OR_NONE = {"type": "integer", "minimum": 0}
_STEP_SCHEMA: dict[str, Any] = {
    "synchronized_batch_norm": {"type": "boolean"},
    "micro_batches": _COUNT,
    "uneven": {"enum": list(get_args(Uneven))},
}
_SUBTASKS_SCHEMA: dict[str, Any] = {
    "num_devices": _COUNT,
    "task_retries": {"type": "integer", "minimum": 0},
    "micro_batches": _COUNT,
}
_PARALLELISM_SCHEMA = {
    "anyOf": [
        object_schema(
            {
                "kind": {"const": Mirrored.kind},
                "num_replicas": _COUNT,
                **_STEP_SCHEMA,
                "max_replicas": {"anyOf": [_COUNT, {"type": "null"}]},
            }
        ),
        object_schema(
            {
                "kind": {"const": MultiWorker.kind},
                "num_workers": {"type": "integer", "minimum": 2},
                "replicas_per_worker": _COUNT,
                "min_workers": {"anyOf": [_COUNT, {"type": "null"}]},
                "placement": {"enum": list(get_args(Placement))},
                **_STEP_SCHEMA,
            },
            ["kind"],
        ),
        object_schema(
            {
                "kind": {"const": ModelParallel.kind},
                "num_stages": _COUNT,
                "micro_batches": _COUNT,
            },
            ["kind"],
        ),
        object_schema(
            {
                "kind": {"const": Asynchronous.kind},
                "num_workers": _COUNT,
                "max_staleness": _COUNT,
                "server_cpus": _COUNT_OR_NONE,
                "max_replacements": _COUNT_OR_NONE,
                "placement": {"enum": list(get_args(Placement))},
                "micro_batches": _COUNT,
            },
            ["kind"],
        ),
        object_schema(
            {
                "kind": {"const": Folds.kind},
                "num_folds": {"type": "integer", "minimum": 2},
                "stratified": {"type": "boolean"},
                "grouped": {"type": "boolean"},
                "num_repeats": _COUNT,
                **_SUBTASKS_SCHEMA,
            },
            ["kind"],
        ),
        object_schema(
            {
                "kind": {"const": Hybrid.kind},
                "num_replicas": _COUNT,
                "num_stages": _COUNT,
                "micro_batches": _COUNT,
            },
            ["kind"],
        ),
        object_schema(
            {
                "kind": {"const": Ensemble.kind},
                "num_members": {"type": "integer", "minimum": 2},
                **_SUBTASKS_SCHEMA,
            },
            ["kind"],
        ),
    ]
}

ParallelismSection = Annotated[
    Parallelism,
    PlainValidator(_parallelism),
    PlainSerializer(_plain_parallelism),
    WithJsonSchema(_PARALLELISM_SCHEMA),
]
