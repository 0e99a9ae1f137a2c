"""Sweep files: their settings with overrides, and what of their workloads belongs to these."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from tune_tf.config.workload_reference import import_workload
from tune_tf.errors import (
    ErrorDetail,
    InvalidSettingsError,
    WorkloadError,
    adding_errors_to,
    did_you_mean,
)
from tune_tf.space.declaration import DECLARATION_KINDS
from tune_tf.space.document import YamlDocument
from tune_tf.workload import Workload


def read_sweep_file(
    path: Path, overrides: Iterable[str] = ()
) -> tuple[YamlDocument, list[ErrorDetail]]:
    """Return the settings of a sweep file, and the errors found so far.

    The workload is imported for its space and to check ``data``.

    Args:
        path: The file.
        overrides: Texts ``dotted.key=value`` that override it.
    """
    original = YamlDocument.read(path)
    base_dir = path.absolute().parent
    if "space" not in original.data:
        workload = None
        with suppress(InvalidSettingsError):  # reported with the other errors
            workload = _workload_of(original.data, base_dir)
        if space := getattr(workload, "space", None):
            original = replace(original, data={**original.data, "space": space.to_dict()})
    document = original.overriding(overrides, exclusive=DECLARATION_KINDS)
    errors = [*document.errors, *_unknown_parameters(document, original)]
    if document.data.get("data") is not None:
        # An ended sweep must be readable without its workload.
        with suppress(WorkloadError), adding_errors_to(errors):
            _workload_of(document.data, base_dir)
    return document, errors


def _workload_of(settings: Mapping[str, Any], base_dir: Path) -> Workload | None:
    """Return the workload that settings name, if they and ``data`` are well-formed."""
    reference, data = settings.get("workload"), settings.get("data")
    is_mapping = isinstance(data, Mapping) and all(isinstance(key, str) for key in data)
    if not isinstance(reference, str) or ":" not in reference or not (data is None or is_mapping):
        return None
    return import_workload(reference, base_dir, data)


def _unknown_parameters(document: YamlDocument, original: YamlDocument) -> list[ErrorDetail]:
    """Return an error for each override of a parameter that the file does not have."""
    known, names = (
        list(space) if isinstance(space := each.data.get("space"), dict) else []
        for each in (original, document)
    )
    return [
        ErrorDetail(
            f"space.{name}",
            f"the space has no {name!r}{did_you_mean(name, known)}; it has {', '.join(known)}",
        )
        for name in names
        if name not in known and f"space.{name}" in document.places
    ]
