"""Isolation of trials that share a workload object, such as one with a pretrained model."""

import contextlib
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

from tune_tf.errors import WorkloadError
from tune_tf.training.reuse.fingerprint import fingerprint
from tune_tf.training.reuse.object_walk import ABSENT, is_library
from tune_tf.workload import Workload

_MAX_SEARCHED_LENGTH = 1000
_PLAIN = frozenset((str, bytes, int, float, bool, type(None), np.ndarray))
_KERAS_SETTINGS: dict[Callable[[], Any], Callable[[Any], None]] = {
    keras.config.floatx: keras.config.set_floatx,
    keras.config.epsilon: keras.config.set_epsilon,
    keras.config.image_data_format: keras.config.set_image_data_format,
    keras.config.dtype_policy: keras.config.set_dtype_policy,
}
"""Setter of each process-wide Keras setting, by getter."""


class WorkloadState:
    """State of a workload, reset before each trial.

    Before ``build_model`` runs again, the workload's variables get their initial values. Changes by
    ``build_model`` or ``train_step`` to the workload or to Keras' settings are undone.

    Args:
        workload: A workload that has not built a model yet.
    """

    _of_workload: ClassVar[dict[int, "WorkloadState"]] = {}

    @classmethod
    def of(cls, workload: Workload) -> "WorkloadState":
        """Return the state of a workload; all loops of a process share it."""
        number = id(workload)
        if number not in cls._of_workload:
            cls._of_workload[number] = cls(workload)
            weakref.finalize(workload, cls._of_workload.pop, number, None)
        return cls._of_workload[number]

    def __init__(self, workload: Workload) -> None:
        self._name = type(workload).__name__
        self._values = [
            (variable, variable.numpy())
            for value in vars(workload).values()
            if not isinstance(value, np.ndarray)
            for variable in fingerprint([value]).variables
        ]
        self._changes: dict[tuple[int, Any], _Change] = {}  # by container and key
        self._settings: dict[Callable[[], Any], tuple[Any, Any]] = {}  # before and after
        self._trained: dict[int, weakref.ref[Any]] = {}
        self._loop: Callable[[], Any] = lambda: None  # weak reference

    @contextlib.contextmanager
    def building(self, workload: Workload, loop: Any) -> Iterator[None]:
        """Undo the changes of earlier trials; a context for ``build_model`` of a training loop.

        Raises:
            WorkloadError: Another loop trains a model with variables of the workload.
        """
        other = self._loop()
        if self._values and other is not None and other is not loop and other.is_training:
            raise WorkloadError(
                f"{self._name} keeps {len(self._values)} variables on self (a base model, say), "
                "which several models in one process would train at once: create all layers in "
                "build_model, or leave out folds"
            )
        self._loop = weakref.ref(loop)
        for change in self._changes.values():
            change.undo()
        self._changes = {}
        for setting, (before, after) in self._settings.items():
            if setting() == after:
                _KERAS_SETTINGS[setting](before)
        self._settings = {}
        for variable, value in self._values:
            variable.assign(value)
        with self.record_changes(workload):
            yield

    @contextlib.contextmanager
    def record_changes(self, workload: Workload) -> Iterator[None]:
        """Record changes of the workload in this context, which :meth:`building` undoes later.

        Covers attributes of the workload and of user-defined objects in it, dicts, lists and sets
        among them, and Keras' process-wide settings.
        """
        contents = [(each, _contents(each)) for each in _containers(workload)]
        settings = {setting: setting() for setting in _KERAS_SETTINGS}
        try:
            yield
        finally:
            for setting, value in settings.items():
                if setting() != value:
                    first, _ = self._settings.get(setting, (value, None))
                    self._settings[setting] = (first, setting())
            for container, before in contents:
                after = _contents(container)
                for key in before.keys() | after.keys():
                    old, new = before.get(key, ABSENT), after.get(key, ABSENT)
                    if not _is_same(old, new):
                        change_key = (id(container), key)
                        if change_key in self._changes:
                            old = self._changes[change_key].before
                        self._changes[change_key] = _Change(container, key, old, new)

    def record_trained(self, variables: Iterable[Any]) -> None:
        """Record variables that a trial will train."""
        parts = (part for variable in variables for part in _parts(variable))
        self._trained.update((id(part), weakref.ref(part)) for part in parts)

    def refuse_trained_variables(self, variables: Iterable[Any]) -> None:
        """Refuse a new model that uses variables trained by an earlier trial.

        Raises:
            WorkloadError: The model uses such variables.
        """
        initial = {id(variable) for variable, _ in self._values}
        shared = [
            each
            for each in variables
            if id(each) not in initial
            and any(self._trained.get(id(part), lambda: None)() is part for part in _parts(each))
        ]
        if shared:
            names = ", ".join(str(variable.name) for variable in shared[:3])
            raise WorkloadError(
                f"{self._name} uses {len(shared)} variable(s) of an earlier trial ({names}), which "
                "would start with what that trial learned: create all layers in build_model, or "
                "create those that trials share in __init__ and keep them on self, where each "
                "trial finds their initial values"
            )


@dataclass(frozen=True)
class _Change:
    """Change of one value in a container."""

    container: Any
    key: Any  # of a dict
    before: Any
    after: Any

    def undo(self) -> None:
        """Restore the old value unless other code, such as `load_data`, has set another one."""
        if not _is_same(_contents(self.container).get(self.key, ABSENT), self.after):
            return
        if not isinstance(self.container, dict):
            self.container.clear()
            add = "update" if isinstance(self.container, set) else "extend"
            getattr(self.container, add)(self.before)
        elif self.before is ABSENT:
            del self.container[self.key]
        else:
            self.container[self.key] = self.before


def _containers(workload: Workload) -> list[Any]:
    """Return the mutable containers reachable from a workload.

    They are the attribute dicts of the workload and of user-defined objects, and the dicts, lists
    and sets in them. Contents of long containers are skipped, since those are rows.
    """
    containers: dict[int, Any] = {}
    pending: list[Any] = [vars(workload)]
    while pending:
        each = pending.pop()
        if isinstance(each, SimpleNamespace) or _is_of_user(each):
            each = vars(each)
        if isinstance(each, dict | list | set | deque | tuple) and id(each) not in containers:
            containers[id(each)] = each
            if len(each) <= _MAX_SEARCHED_LENGTH:
                values = each.values() if isinstance(each, dict) else each
                pending += [value for value in values if type(value) not in _PLAIN]
    return [each for each in containers.values() if not isinstance(each, tuple)]


def _is_of_user(value: Any) -> bool:
    """Return whether an object's class and all bases are user-defined, unlike a layer's."""
    kinds = type(value).__mro__[:-1]
    return hasattr(value, "__dict__") and not any(is_library(kind.__module__) for kind in kinds)


def _contents(container: Any) -> dict[Any, Any]:
    """Return a container's values by key; the key None holds all values of a list or set."""
    return dict(container) if isinstance(container, dict) else {None: tuple(container)}


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two values are identical, or tuples of identical objects."""
    if isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other):
        return all(a is b for a, b in zip(one, other, strict=True))
    return one is other


def _parts(variable: Any) -> Sequence[Any]:
    """Return the TensorFlow variables of a Keras variable, one per replica."""
    inner = variable.value if isinstance(variable, keras.Variable) else variable
    return inner.values if isinstance(inner, tf.distribute.DistributedValues) else (inner,)
