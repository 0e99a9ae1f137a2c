"""What a workload keeps from one trial to the next, such as a base model."""

import contextlib
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, Protocol

import numpy as np

from tune_tf.errors import WorkloadError
from tune_tf.training.fingerprint import fingerprint
from tune_tf.workload import Workload

_ABSENT = object()


class Trains(Protocol):
    """What trains models one after another."""

    @property
    def is_training(self) -> bool:
        """Whether a trial has begun and not ended."""


class WorkloadState:
    """Lets each trial begin with a workload as the first one found it.

    Variables that it keeps get their first values back, and attributes that ``build_model`` or a
    first ``train_step`` sets are taken away before ``build_model`` runs again.

    Args:
        workload: Before its first model was built.
    """

    _of_workload: ClassVar[dict[int, "WorkloadState"]] = {}

    @classmethod
    def of(cls, workload: Workload) -> "WorkloadState":
        """Return those of a workload, which all loops of a process share."""
        number = id(workload)
        if number not in cls._of_workload:
            cls._of_workload[number] = cls(workload)
            weakref.finalize(workload, cls._of_workload.pop, number, None)
        return cls._of_workload[number]

    def __init__(self, workload: Workload) -> None:
        self._name = type(workload).__name__
        kept = (value for value in vars(workload).values() if not isinstance(value, np.ndarray))
        found = (fingerprint([value]).variables for value in kept)
        self._values = [(each, each.numpy()) for variables in found for each in variables]
        self._kept = {id(variable) for variable, _ in self._values}
        self._set: dict[str, tuple[Any, Any]] = {}  # what was set, what was there
        self._trained: dict[int, weakref.ref[Any]] = {}
        self._user: Callable[[], Trains | None] = lambda: None

    @contextlib.contextmanager
    def building(self, workload: Workload, user: "Trains") -> Iterator[None]:
        """Undo what earlier trials left; to be entered around ``build_model``.

        Args:
            workload: That was given first.
            user: The loop that builds.

        Raises:
            WorkloadError: Another loop trains a model with variables that the workload keeps.
        """
        other = self._user()
        if self._values and other is not None and other is not user and other.is_training:
            raise WorkloadError(
                f"{self._name} keeps {len(self._values)} variables on self (a base model, say), "
                "and several models with them would train in one process, changing each other: "
                "make all layers in build_model, or leave out folds and asynchronous validation"
            )
        self._user = weakref.ref(user)
        attributes = vars(workload)
        for name, (value, before) in self._set.items():
            if attributes.get(name, _ABSENT) is not value:
                continue  # load_data has set it since
            if before is _ABSENT:
                object.__delattr__(workload, name)
            else:
                object.__setattr__(workload, name, before)
        for variable, value in self._values:
            variable.assign(value)
        self._set = {}
        with self.noted(workload):
            yield

    @contextlib.contextmanager
    def noted(self, workload: Workload) -> Iterator[None]:
        """Note attributes that are set meanwhile, for :meth:`building` to undo.

        Args:
            workload: That was given first.
        """
        attributes = vars(workload)
        begun = dict(attributes)
        yield
        for name, value in attributes.items():
            before = begun.get(name, _ABSENT)
            if before is not value:
                self._set[name] = (value, self._set[name][1] if name in self._set else before)

    def note_trained(self, variables: Iterable[Any]) -> None:
        """Note the variables of a model that is going to be trained."""
        self._trained.update((id(each), weakref.ref(each)) for each in variables if each.trainable)

    def refuse_trained(self, variables: Iterable[Any]) -> None:
        """Refuse a new model with variables that an earlier trial has trained.

        Raises:
            WorkloadError: Names them.
        """
        shared = [
            each
            for each in variables
            if id(each) not in self._kept and self._trained.get(id(each), lambda: None)() is each
        ]
        if shared:
            names = ", ".join(map(_name_of, shared[:3]))
            raise WorkloadError(
                f"{self._name}.build_model returned a model with {len(shared)} variable(s) of an "
                f"earlier trial's model ({names}), which would begin with what that trial has "
                "learnt: make all layers in build_model, or make those that trials share in "
                "__init__ and keep them on self, where each trial finds their first values"
            )


def _name_of(variable: Any) -> str:
    return str(variable.name)
