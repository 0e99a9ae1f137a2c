"""Workloads given as objects, which the folders of their sweeps store."""

import os
import pickle
import sys
import sysconfig
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Final, TypeGuard

from tune_tf.atomic_files import atomic_path
from tune_tf.errors import WorkloadError
from tune_tf.workload import Workload

STORED_FILE: Final = "workload.pickle"
"""File of a stored workload in the folder of its sweep."""


class StoredReference(str):
    """Reference to a workload class or instance, ``workload.pickle:Name``, with the object.

    The name is that of the class, or of the function that builds the model. In the settings that a
    folder holds, it is plain text.
    """

    __slots__ = ("workload",)
    workload: type[Workload] | Workload

    @classmethod
    def of(cls, workload: type[Workload] | Workload) -> "StoredReference":
        """Return the reference to a class or instance."""
        kind = workload if isinstance(workload, type) else type(workload)
        function = getattr(workload, "model_function", kind)
        name = getattr(function, "__name__", type(function).__name__)
        reference = cls(f"{STORED_FILE}:{name if name.isidentifier() else kind.__name__}")
        reference.workload = workload
        return reference


def is_workload(value: object) -> TypeGuard[type[Workload] | Workload]:
    """Return whether a value is a workload class or instance."""
    if isinstance(value, type):
        return issubclass(value, Workload) and value is not Workload
    return isinstance(value, Workload)


def write_workload(workload: type[Workload] | Workload, folder: Path) -> None:
    """Store a workload with its code, except that of installed packages.

    Raises:
        WorkloadError: It cannot be pickled.
    """
    from ray import cloudpickle  # late: slow to import

    with ExitStack() as stack:
        for module in _own_modules():
            cloudpickle.register_pickle_by_value(module)
            stack.callback(cloudpickle.unregister_pickle_by_value, module)
        try:
            data = cloudpickle.dumps(workload)
        except Exception as error:
            raise WorkloadError(
                f"the workload cannot be pickled, as trials in other processes need: {error}; "
                "create open files, locks and datasets in load_data, or in the function that is "
                "given as data"
            ) from error
    with atomic_path(folder / STORED_FILE) as path:
        path.write_bytes(data)


def read_workload(folder: Path) -> type[Workload] | Workload:
    """Return the workload that the folder of a sweep stores; this runs its code.

    Raises:
        WorkloadError: The file is missing or damaged, or lacks a package.
    """
    path = folder / STORED_FILE
    try:
        workload: type[Workload] | Workload = pickle.loads(path.read_bytes())  # noqa: S301  a workload is code
    except FileNotFoundError:
        raise WorkloadError(
            f"{path} is missing: it holds the workload, which was given to the sweep as an "
            "object; restore it, or start the sweep again"
        ) from None
    except Exception as error:
        raise WorkloadError(
            f"{path}, which holds the workload, cannot be read: {type(error).__name__}: {error}; "
            "use the Python and packages that the sweep was started with, or start it again"
        ) from error
    return workload


def _own_modules() -> list[ModuleType]:
    """Return the imported modules that are neither installed nor of Python or tune_tf."""
    paths = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    # What a distribution of Linux brings is elsewhere.
    paths += [
        str(Path(sys.modules[name].__path__[0]).parent)
        for name in ("keras", "numpy", "ray")
        if name in sys.modules
    ]
    installed = tuple(f"{path}{os.sep}" for path in paths)
    return [
        module
        for name, module in list(sys.modules.items())
        if name == getattr(module, "__name__", None) != "__main__"
        and name.partition(".")[0] != "tune_tf"
        and (file := getattr(module, "__file__", None))
        and not file.startswith(installed)
    ]
