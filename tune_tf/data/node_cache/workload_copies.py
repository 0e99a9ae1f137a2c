"""Copies of a workload that isolate its methods from those of other trials."""

import contextlib
import io
import logging
import pickle
import types
import uuid
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from tune_tf.data.digest import digest
from tune_tf.data.node_cache.recording_config import RecordingConfig
from tune_tf.errors import WorkloadError
from tune_tf.workload import Workload

_log = logging.getLogger(__name__)

MethodResult = TypeVar("MethodResult")

LOAD_DATA = "load_data"

_NOT_COPIED = (type, types.FunctionType, types.ModuleType)


@dataclass(frozen=True, eq=False)
class AttributeChanges:
    """Attributes of a workload that a method set, changed in place or removed.

    The ``owner`` is the workload that the method ran on; None if it is in another process.
    """

    values: Mapping[str, Any]
    removed: frozenset[str] = frozenset()
    owner: Workload | None = None

    @cached_property
    def names(self) -> frozenset[str]:
        """Names of the attributes."""
        return self.removed | self.values.keys()

    @cached_property
    def version(self) -> bytes:
        """Digest of the changes; equal for equal values."""
        if not self.names:
            return b""
        return digest((dict(self.values), self.removed)) or uuid.uuid4().bytes


class WorkloadCopies:
    """Runner of a workload's methods on copies, which are isolated between trials.

    A copy has the attributes that the workload had before its first trial, so a method never sees
    attributes that another trial set. Attributes that it sets itself are put on the workload for
    the other methods of its trial and removed before the next trial. Classes, functions and
    read-only arrays are not copied.

    Args:
        workload: The user's workload, before any of its methods ran.
    """

    _of_workload: ClassVar[dict[int, "WorkloadCopies"]] = {}

    def __init__(self, workload: Workload) -> None:
        number = id(workload)
        if earlier := self._of_workload.get(number):
            earlier._replace({})
        else:
            weakref.finalize(workload, self._of_workload.pop, number, None)
        self._of_workload[number] = self
        self._workload = weakref.ref(workload)
        self._class: type[Workload] = type(workload)
        self._first = AttributeSnapshot(_attributes(workload), workload)
        self._applied: dict[str, _AppliedChanges] = {}
        self._warned: set[str] = set()

    @classmethod
    def of(cls, workload: Workload) -> "WorkloadCopies":
        """Return the latest copies of a workload, creating them if there are none."""
        return cls._of_workload.get(id(workload)) or cls(workload)

    @property
    def loaded_version(self) -> bytes:
        """Digest of the attributes that ``load_data`` set; equal for equal values."""
        return self._applied[LOAD_DATA].changes.version if self.has_loaded else b""

    @property
    def has_loaded(self) -> bool:
        """Whether ``load_data`` set or removed attributes of the workload."""
        return LOAD_DATA in self._applied and bool(self._applied[LOAD_DATA].changes.names)

    def run(
        self, name: str, call: Callable[[Workload], MethodResult]
    ) -> tuple[MethodResult, AttributeChanges]:
        """Run a method on a new copy; return its result and its changes to the copy.

        The copy has the changes of the trial's other methods, except for ``load_data``, which runs
        first.

        Raises:
            WorkloadError: The method changed a class attribute, which all trials share.
        """
        others = {} if name == LOAD_DATA else {**self._applied}
        others.pop(name, None)
        copy = self._copy(others)
        shared = {id(each): b"%d" % id(each) for each in self._first.shared_arrays}
        before = {name: digest(value, shared) for name, value in _attributes(copy).items()}
        class_values = _class_values(self._class)
        result = call(copy)
        _refuse_class_changes(name, class_values, _class_values(self._class))
        after = _attributes(copy)
        values = {
            name: value
            for name, value in after.items()
            if name not in self._first.uncopied
            and (before.get(name) is None or digest(value, shared) != before[name])
        }
        return result, AttributeChanges(values, frozenset(before.keys() - after.keys()), copy)

    def apply(self, name: str, changes: AttributeChanges, config: Mapping[str, Any]) -> None:
        """Apply changes to the workload, replacing those of earlier trials.

        They are applied again each time a result that the method made from ``config`` is reused.
        """
        snapshot = AttributeSnapshot(changes.values, changes.owner)
        applied = _AppliedChanges(replace(changes, owner=None), snapshot)

        def replace_applied() -> None:
            self._replace({**({} if name == LOAD_DATA else self._applied), name: applied})

        if not isinstance(config, RecordingConfig):
            replace_applied()
            return
        config.on_use(replace_applied)
        uncopied = {*self._first.uncopied, *snapshot.uncopied}
        if uncopied:
            config.use_once()
        if not uncopied <= self._warned:
            self._warned |= uncopied
            _log.warning(
                "%s.%s runs again for each trial, because %s cannot be pickled and so cannot be "
                "compared between trials: create it where it is used, or leave it out in "
                "__getstate__",
                self._class.__name__,
                name,
                ", ".join(f"self.{attribute}" for attribute in sorted(uncopied)),
            )

    def _copy(self, applied: "Mapping[str, _AppliedChanges]") -> Workload:
        copy: Workload = object.__new__(self._class)
        state = _with_changes(self._first.restored(copy), applied, copy)
        set_state = getattr(self._class, "__setstate__", None)
        if set_state is not None:
            set_state(copy, state)
            return copy
        for name, value in state.items():
            object.__setattr__(copy, name, value)
        return copy

    def _replace(self, applied: "dict[str, _AppliedChanges]") -> None:
        """Apply new changes to the workload and revert the current ones."""
        workload = self._workload()
        old_and_new = (*self._applied.values(), *applied.values())
        names = {name for changes, _ in old_and_new for name in changes.names}
        self._applied = applied
        if workload is None or not names:
            return
        values = _with_changes({}, applied, workload)
        if not names <= values.keys():  # some return to their initial values
            values = _with_changes(self._first.restored(workload), applied, workload)
        for name in names:
            if name in values:
                object.__setattr__(workload, name, values[name])
            elif hasattr(workload, name):
                with contextlib.suppress(AttributeError):  # a class attribute
                    object.__delattr__(workload, name)


class _AppliedChanges(NamedTuple):
    changes: AttributeChanges
    snapshot: "AttributeSnapshot"


def _with_changes(
    state: dict[str, Any], applied: Mapping[str, _AppliedChanges], owner: Workload
) -> dict[str, Any]:
    for changes, snapshot in applied.values():
        state = {name: value for name, value in state.items() if name not in changes.removed}
        state |= snapshot.restored(owner)
    return state


class AttributeSnapshot:
    """Snapshot of attributes that can be restored any number of times.

    References to ``owner`` are replaced by the workload that the attributes are restored to.
    """

    def __init__(self, values: Mapping[str, Any], owner: Workload | None) -> None:
        self._shared: dict[int, Any] = {}
        #: Attributes that cannot be pickled; restored as they are, uncopied.
        self.uncopied: Mapping[str, Any] = {}
        self._pickle = self._pickled(dict(values), owner)
        if self._pickle is None:
            self.uncopied = {n: it for n, it in values.items() if not self._pickled(it, owner)}
            others = {name: value for name, value in values.items() if name not in self.uncopied}
            self._pickle = self._pickled(others, owner)
        if self._pickle is None:
            self.uncopied = dict(values)

    @property
    def shared_arrays(self) -> "list[np.ndarray[Any, Any]]":
        """Read-only arrays that are not copied."""
        return [each for each in self._shared.values() if isinstance(each, np.ndarray)]

    def restored(self, owner: Workload) -> dict[str, Any]:
        """Return the attributes, with references to the owner replaced by a new owner."""
        values = {} if self._pickle is None else self._unpickled(self._pickle, owner)
        return {**values, **self.uncopied}

    def _pickled(self, value: Any, owner: Workload | None) -> bytes | None:
        """Return a pickle that is known to load, or None."""
        file = io.BytesIO()
        try:
            _Pickler(file, self._shared, owner).dump(value)
            self._unpickled(file.getvalue(), owner)
        except Exception:  # noqa: BLE001  pickling may raise anything
            return None
        return file.getvalue()

    def _unpickled(self, pickled: bytes, owner: Workload | None) -> Any:
        return _Unpickler(io.BytesIO(pickled), self._shared, owner).load()


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, shared: dict[int, Any], owner: Workload | None) -> None:
        super().__init__(file, protocol=5)
        self._shared = shared
        self._owner = owner

    def persistent_id(self, obj: Any) -> int | None:
        """Return an identifier for objects that are not copied, None for all others."""
        if obj is self._owner and obj is not None:
            return 0
        read_only = isinstance(obj, np.ndarray) and not obj.flags.writeable
        if not read_only and not isinstance(obj, _NOT_COPIED):
            return None
        self._shared[id(obj)] = obj
        return id(obj)


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, shared: Mapping[int, Any], owner: Workload | None) -> None:
        super().__init__(file)
        self._shared = shared
        self._owner = owner

    def persistent_load(self, pid: Any) -> Any:
        """Return the uncopied object of an identifier."""
        return self._shared[pid] if pid else self._owner


def _attributes(workload: Workload) -> dict[str, Any]:
    """Return the attributes that are pickled with a workload."""
    state = workload.__getstate__()
    parts = state if isinstance(state, tuple) else (state,)  # a tuple for classes with slots
    return {name: value for part in parts if part for name, value in part.items()}


def _class_values(kind: type) -> dict[str, bytes | None]:
    bases = [each for each in kind.__mro__ if issubclass(each, Workload) and each is not Workload]
    return {
        f"{each.__name__}.{name}": digest(value)
        for each in bases
        for name, value in vars(each).items()
        if not name.startswith("__") and not callable(value) and not hasattr(value, "__get__")
    }


def _refuse_class_changes(
    method: str, before: Mapping[str, bytes | None], after: Mapping[str, bytes | None]
) -> None:
    changed = sorted(name for name, value in after.items() if before.get(name) != value)
    if changed:
        raise WorkloadError(
            f"{method} changed {', '.join(changed)}, which belongs to the class and so to all "
            "trials: set it on self (self.name = ...), which is separate for each trial"
        )


def has_loaded(workload: Workload) -> bool:
    """Return whether ``load_data`` set or removed attributes of a workload."""
    return WorkloadCopies.of(workload).has_loaded
