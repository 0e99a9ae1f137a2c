"""Sweep files: their settings with overrides, and what of their workloads belongs to these."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tune_tf.config.workload_reference import import_workload
from tune_tf.errors import ErrorDetail, InvalidSettingsError, WorkloadError, did_you_mean
from tune_tf.space.declaration import DECLARATION_KINDS
from tune_tf.space.document import OVERRIDE, YamlDocument


def read_sweep_file(
    path: Path, overrides: Iterable[str] = (), *, trusted: bool = True
) -> tuple[YamlDocument, list[ErrorDetail]]:
    """Return the settings of a sweep file, and the errors found so far.

    Args:
        path: The file.
        overrides: Texts ``dotted.key=value`` that override it.
        trusted: Whether to import the workload for its space and to check ``data``.
    """
    original = YamlDocument.read(path)
    base_dir = path.absolute().parent
    if trusted:
        original = replace(original, data=_add_workload_space(original.data, base_dir))
    document = original.overriding(overrides, exclusive=DECLARATION_KINDS)
    _drop_other_limit(document)
    errors = [*document.errors, *_unknown_parameters(document, original)]
    if trusted:
        errors += _data_errors(document.data, base_dir)
    return document, errors


def _drop_other_limit(document: YamlDocument) -> None:
    """Remove the file's ``max_t`` if ``epochs`` is overridden, and the reverse."""
    scheduler = document.data.get("scheduler")
    base = scheduler.get("base") if isinstance(scheduler, dict) else None
    sections = [section for section in (scheduler, base) if isinstance(section, dict)]
    if "epochs" in document.overridden:
        for section in sections:
            section.pop("max_t", None)
    elif any(key.partition(".")[0] == "scheduler" for key in document.overridden) and any(
        "max_t" in section for section in sections
    ):
        document.data.pop("epochs", None)


def _add_workload_space(settings: Mapping[str, Any], base_dir: Path) -> dict[str, Any]:
    """Add the workload's own space to settings without one."""
    if "space" in settings or not _names_a_workload(settings):
        return dict(settings)
    data = settings.get("data") if _has_data(settings) else None
    try:
        workload = import_workload(settings["workload"], base_dir, data)
    except InvalidSettingsError:
        return dict(settings)  # reported with the other errors
    space = getattr(workload, "space", None)
    return dict(settings) if space is None else {**settings, "space": space.to_dict()}


def _data_errors(settings: Mapping[str, Any], base_dir: Path) -> list[ErrorDetail]:
    """Return the workload's errors in its own settings."""
    if _has_data(settings) and _names_a_workload(settings):
        try:
            import_workload(settings["workload"], base_dir, settings["data"])
        except InvalidSettingsError as error:
            return list(error.details)
        except WorkloadError:
            pass  # an ended sweep must be readable without its workload
    return []


def _names_a_workload(settings: Mapping[str, Any]) -> bool:
    return isinstance(settings.get("workload"), str) and ":" in settings["workload"]


def _has_data(settings: Mapping[str, Any]) -> bool:
    """Return whether there are settings of the workload, and well-formed ones."""
    data = settings.get("data")
    return isinstance(data, Mapping) and all(isinstance(key, str) for key in data)


def _unknown_parameters(document: YamlDocument, original: YamlDocument) -> list[ErrorDetail]:
    """Return an error for each override of a parameter that the file does not have."""
    errors = []
    space = original.data.get("space")
    known = list(space) if isinstance(space, dict) else []
    for key, override in document.overridden.items():
        names = key.split(".")
        if len(names) > 1 and names[0] == "space" and names[1] not in known:
            text = (
                f"the space has no {names[1]!r}{did_you_mean(names[1], known)}; it has "
                f"{', '.join(known)}"
            )
            errors.append(ErrorDetail(f"{OVERRIDE} {override}", text))
    return errors
