"""How a sweep file names its workload."""

import importlib
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

from tune_tf.errors import WorkloadError, near_ones
from tune_tf.workload import Workload


def import_workload(reference: str, base_dir: Path) -> Workload:
    """Return the workload that a sweep file names.

    Args:
        reference: ``module:attribute`` or ``path/to/file.py:Class``; the attribute is an instance
            of :class:`~tune_tf.workload.Workload` or a subclass that needs no arguments.
        base_dir: What the path of a file is relative to. Modules are looked for here too, after
            all other places.

    Raises:
        WorkloadError: It cannot be imported, or is no workload.
    """
    place, _, attribute = reference.rpartition(":")
    module = (
        _file_module(reference, (base_dir / place).resolve())
        if place.endswith(".py")
        else _module(reference, place, base_dir.resolve())
    )
    there = sorted(name for name, value in vars(module).items() if _is_workload(value))
    if not hasattr(module, attribute):
        text = (
            f"workload {reference!r}: {module.__file__ or place} has no {attribute!r}"
            f"{near_ones(attribute, there)}; its workloads are {', '.join(there) or 'none'}"
        )
        raise WorkloadError(text)
    workload = getattr(module, attribute)
    if isinstance(workload, type) and issubclass(workload, Workload):
        try:
            workload = workload()
        except Exception as error:
            text = (
                f"workload {reference!r}: {attribute}() raised {type(error).__name__}: {error}; "
                "make an instance at the top of the module, and name that"
            )
            raise WorkloadError(text) from error
    if not isinstance(workload, Workload):
        text = (
            f"workload {reference!r}: {attribute} is {workload!r}, which is no "
            f"tune_tf.Workload; the workloads of {module.__file__ or place} are "
            f"{', '.join(there) or 'none'}"
        )
        raise WorkloadError(text)
    return workload


def _is_workload(value: object) -> bool:
    """Return whether a value of a module can be named as a workload."""
    if isinstance(value, type):
        return issubclass(value, Workload) and value is not Workload
    return isinstance(value, Workload)


def _module(reference: str, name: str, base_dir: Path) -> ModuleType:
    """Import a module by name."""
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


def _file_module(reference: str, path: Path) -> ModuleType:
    """Run a file as a module.

    It does not stay among Python's modules: so its classes are pickled whole, and reach processes
    that cannot see the file.
    """
    if not path.is_file():
        raise WorkloadError(f"workload {reference!r}: there is no file {path}")
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    name = f"tune_tf_workload_{re.sub(r'[^A-Za-z0-9_]', '_', path.stem)}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:  # cannot be: the name ends in .py
        raise WorkloadError(f"workload {reference!r}: {path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up while it runs
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise WorkloadError(
            f"workload {reference!r}: {path} raised {type(error).__name__}: {error}"
        ) from error
    finally:
        del sys.modules[name]
    return module
