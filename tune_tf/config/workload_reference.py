"""Import of the workload that a sweep file names."""

import copy
import importlib
import re
import runpy
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from tune_tf.config.stored_workload import (
    STORED_FILE,
    StoredReference,
    is_workload,
    read_workload,
)
from tune_tf.errors import ErrorDetail, InvalidSettingsError, WorkloadError, did_you_mean
from tune_tf.workload import Workload


def import_workload(
    reference: str, base_dir: Path, data: Mapping[str, Any] | None = None
) -> Workload:
    """Import the workload that a sweep file names.

    Args:
        reference: ``module:attribute`` or ``path/to/file.py:Class``; the attribute is an instance
            of :class:`~tune_tf.workload.Workload` or a subclass. ``workload.pickle:Class`` is
            stored in ``base_dir``.
        base_dir: Base of a relative file path, and of paths in ``data``; also appended to Python's
            module search path.
        data: Settings of the subclass; None for none.

    Raises:
        WorkloadError: It cannot be imported, or is not a workload.
        InvalidSettingsError: ``data`` are invalid.
    """
    path, _, attribute = reference.rpartition(":")
    if isinstance(reference, StoredReference):
        return _workload_of(reference, copy.copy(reference.workload), base_dir, data)
    if path == STORED_FILE:
        return _workload_of(reference, read_workload(base_dir), base_dir, data)
    module: ModuleType | SimpleNamespace
    if path.endswith(".py"):
        module = _run_file(reference, (base_dir / path).resolve())
    else:
        module = _import_module(reference, path, base_dir.resolve())
    workload = getattr(module, attribute, None)
    if not is_workload(workload):
        names = sorted(
            name
            for name, value in vars(module).items()
            if is_workload(value) and not name.startswith("_")
        )
        wrong = f"{path} has no {attribute!r}{did_you_mean(attribute, names)}"
        if hasattr(module, attribute):
            wrong = f"{attribute} of {path} is {workload!r}, which is not a tune_tf.Workload"
        known = f"its workloads are {', '.join(names)}" if names else "it has no workload"
        raise WorkloadError(f"workload {reference!r}: {wrong}; {known}")
    return _workload_of(reference, workload, base_dir, data)


def _workload_of(
    reference: str,
    workload: type[Workload] | Workload,
    base_dir: Path,
    data: Mapping[str, Any] | None,
) -> Workload:
    """Return an instance, created with ``data`` if the workload is a class."""
    if isinstance(workload, type):
        return _instantiate(reference, workload, base_dir, data)
    if data is not None:
        text = (
            f"is given, but {reference.rpartition(':')[2]} is already an instance: name its class "
            f"{type(workload).__name__}, or leave data out"
        )
        raise InvalidSettingsError(ErrorDetail("data", text))
    return workload


def _instantiate(
    reference: str, kind: type[Workload], base_dir: Path, data: Mapping[str, Any] | None
) -> Workload:
    try:
        return kind() if data is None else kind.from_settings(data, base_dir)
    except InvalidSettingsError as error:
        if data is None:
            reasons = "; ".join(str(detail) for detail in error.details)
            text = f"is missing: {kind.__name__} needs settings; {reasons}"
            raise InvalidSettingsError(ErrorDetail("data", text)) from None
        raise InvalidSettingsError(detail.within("data") for detail in error.details) from None
    except Exception as error:
        raise WorkloadError(
            f"workload {reference!r}: {kind.__name__}({'' if data is None else '...'}) raised "
            f"{type(error).__name__}: {error}; give its arguments as data: {{...}}, or create an "
            "instance at module level and name that"
        ) from error


def _import_module(reference: str, name: str, base_dir: Path) -> ModuleType:
    if str(base_dir) not in sys.path:
        sys.path.append(str(base_dir))
    try:
        return importlib.import_module(name)
    except Exception as error:
        missing = isinstance(error, ModuleNotFoundError) and name.startswith(error.name or " ")
        text = (
            f"there is no module {error.name!r}; looked in {base_dir} and on Python's path"  # type: ignore[attr-defined]
            if missing
            else f"importing {name} raised {type(error).__name__}: {error}"
        )
        raise WorkloadError(f"workload {reference!r}: {text}") from error


def _run_file(reference: str, path: Path) -> SimpleNamespace:
    """Return what a file defines.

    It is no imported module, so that its classes are pickled by value for other processes.
    """
    if not path.is_file():
        raise WorkloadError(f"workload {reference!r}: there is no file {path}")
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    name = f"tune_tf_workload_{re.sub(r'[^A-Za-z0-9_]', '_', path.stem)}"
    try:
        return SimpleNamespace(**runpy.run_path(str(path), run_name=name))
    except Exception as error:
        raise WorkloadError(
            f"workload {reference!r}: {path} raised {type(error).__name__}: {error}"
        ) from error
