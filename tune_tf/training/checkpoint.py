"""Checkpoint of a trial in one NumPy ``.npz`` file: all variables, and the rest as one JSON text.

Names and roles match the variables to a model: a zero hyperparameter can remove some, since Dropout
with rate 0 has no random state, and SGD without momentum has no slots.
"""

import json
import os
import pickle
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np

from tune_tf.atomic_files import atomic_path
from tune_tf.errors import CheckpointError, DamagedCheckpointError
from tune_tf.training.callback_state import CallbackState, load_plain
from tune_tf.training.scalars import (
    LearningRate,
    model_layers,
    optimizers_of,
    set_learning_rate,
)

FILE_NAME = "trial.npz"
_HEAD, _CALLBACKS = "head", "callbacks"
_IN_HEAD = ("epoch", "seed", "config", "initial_rate", "names", "has_ended", "needs_data")
_RANDOM_STATE = "seed_generator_state"
_DAMAGE = (
    *(ValueError, KeyError, OSError, EOFError, RuntimeError),
    *(zipfile.BadZipFile, pickle.UnpicklingError),
)

# Optional slots of an optimizer, which may start as zeros at any time.
_OPTIONAL_SLOTS: dict[type, tuple[str, ...]] = {
    keras.optimizers.SGD: ("momentum",),
    keras.optimizers.RMSprop: ("momentum", "average_gradient"),
    keras.optimizers.Adam: ("velocity_hat",),
}


class VariableName(NamedTuple):
    """Identity of a variable.

    Args:
        path: Path of the variable; that of a random state starts with its layer's path.
        role: Role in the layer or optimizer, such as ``kernel`` or ``velocity``.
        is_random: Whether it is the state of a random generator.
        is_slot: Whether it is an optional slot of the optimizer.
    """

    path: str
    role: str
    shape: tuple[int, ...]
    dtype: str
    is_random: bool = False
    is_slot: bool = False


def variable_names(model: keras.Model) -> list[VariableName]:
    """Return the names of a model's variables, followed by those of its built optimizer."""
    random_paths = {
        id(variable): f"{layer.path or layer.name}/{number}/{_RANDOM_STATE}"
        for layer in model_layers(model)
        for number, variable in enumerate(v for v in layer.variables if v.name == _RANDOM_STATE)
    }
    names = []
    for variable in model.variables:
        path = random_paths.get(id(variable), variable.path)
        names.append(_name(variable, path, variable.name, is_random=variable.name == _RANDOM_STATE))
    return [*names, *_optimizer_names(model)]


def match_variables(
    stored: Sequence[VariableName], wanted: Sequence[VariableName]
) -> list[int | None]:
    """Return the index of the stored variable for each wanted one; None for a new one.

    Raises:
        CheckpointError: The stored variables belong to a model of another structure.
    """
    required = _required_indices(stored, wanted), _required_indices(wanted, stored)
    if len(required[0]) != len(required[1]):
        raise CheckpointError(
            f"the checkpoint holds {len(stored)} variables, the model and its optimizer have "
            f"{len(wanted)}: it was saved by a trial with a different structure (layer, width or "
            "optimizer)"
        )
    matches: list[int | None] = [None] * len(wanted)
    for stored_index, wanted_index in zip(*required, strict=True):
        old, new = stored[stored_index], wanted[wanted_index]
        if old[1:4] != new[1:4]:
            raise CheckpointError(
                f"variable {new.path} is {_text(new)}, but the checkpoint holds {_text(old)} "
                f"({old.path}): it was saved by a trial with a different structure"
            )
        matches[wanted_index] = stored_index
    return matches


def _text(name: VariableName) -> str:
    return f"the {name.role} of shape {name.shape} and type {name.dtype}"


def _required_indices(side: Sequence[VariableName], other: Sequence[VariableName]) -> list[int]:
    """Return the indices of one side's variables that the other side has or must have."""
    if [name.role for name in side] == [name.role for name in other]:
        return list(range(len(side)))  # also if layers have other names
    paths, roles = {name.path for name in other}, {name.role for name in other}
    return [
        index
        for index, name in enumerate(side)
        if not (name.is_random and name.path not in paths)
        and not (name.is_slot and name.role not in roles)
    ]


def _optimizer_names(model: keras.Model) -> Iterator[VariableName]:
    owners = {
        id(variable): optimizer
        for optimizer in optimizers_of(model)
        for variable in optimizer.variables
    }
    prefixes = sorted((v.path.replace("/", "_") + "_" for v in model.trainable_variables), key=len)
    for variable in model.optimizer.variables:
        prefix = next((p for p in reversed(prefixes) if variable.name.startswith(p)), "")
        role = variable.name.removeprefix(prefix)
        owner = owners.get(id(variable), model.optimizer)
        kinds = [
            kind.__name__
            for kind, slots in _OPTIONAL_SLOTS.items()
            if prefix and isinstance(owner, kind) and role in slots
        ]
        if kinds:
            role = f"{role} of {kinds[0]}"
        yield _name(variable, variable.path, role, is_slot=bool(kinds))


def _name(variable: Any, path: str, role: str, **flags: bool) -> VariableName:
    return VariableName(path, role, tuple(variable.shape), str(variable.dtype), **flags)


@dataclass(frozen=True)
class Checkpoint:
    """State of a trial between two epochs.

    Args:
        model: Values of ``model.variables``: weights, statistics, states of random generators.
        optimizer: Values of ``optimizer.variables``: iterations, slots, learning rate.
        epoch: Number of finished epochs; with the seed, it determines the order of the data.
        initial_rate: The trial's initial learning rate; None for a schedule.
        has_ended: Whether ``on_train_end`` has been called, so that the weights are final.
        needs_data: Whether ``load_data`` must run before the model is rebuilt, because it sets
            attributes of the workload.
        others: Values of variables that training uses and that are not the model's.
    """

    model: "list[np.ndarray[Any, Any]]" = field(repr=False)
    optimizer: "list[np.ndarray[Any, Any]]" = field(repr=False)
    epoch: int
    seed: int
    config: Mapping[str, Any]
    initial_rate: LearningRate = None
    callbacks: CallbackState = field(default_factory=CallbackState)
    names: list[VariableName] = field(default_factory=list)
    has_ended: bool = False
    needs_data: bool = False
    others: "list[np.ndarray[Any, Any]]" = field(default_factory=list, repr=False)

    @classmethod
    def of(cls, model: keras.Model, **state: Any) -> "Checkpoint":
        """Return the checkpoint of a built model with a built optimizer and of other state."""
        return cls(
            [variable.numpy() for variable in model.variables],
            [variable.numpy() for variable in model.optimizer.variables],
            names=variable_names(model),
            **state,
        )

    def load_into(self, model: keras.Model, initial_rate: LearningRate) -> None:
        """Set a built model and its optimizer to this state.

        The learning rate is the saved one, as callbacks left it, unless the trial's initial rate
        differs from the saved trial's (after an exploit of population-based training). Variables
        that a zero hyperparameter removes, such as dropout states and momentum, may be missing on
        either side; those that the checkpoint lacks start fresh.

        Raises:
            CheckpointError: The state belongs to a model of another structure.
        """
        variables = [*model.variables, *model.optimizer.variables]
        names = variable_names(model)
        matches = match_variables(self.names, names)
        stored = [*self.model, *self.optimizer]
        for variable, name, index in zip(variables, names, matches, strict=True):
            if index is not None:
                variable.assign(stored[index])
            elif name.is_slot:
                variable.assign(np.zeros(variable.shape))
        if initial_rate is not None and initial_rate != self.initial_rate:
            set_learning_rate(model, initial_rate)

    def write(self, folder: Path) -> None:
        """Write the file atomically."""
        head = {name: getattr(self, name) for name in _IN_HEAD}
        arrays = [*self.model, *self.optimizer, *self.others]
        head |= {
            "num_model": len(self.model),
            "num_optimizer": len(self.optimizer),
            "dtypes": [str(array.dtype) for array in arrays],
        }
        named: dict[str, Any] = {f"a{i}": _storable(array) for i, array in enumerate(arrays)}
        named[_HEAD] = np.array(json.dumps(head, default=_plain))
        named[_CALLBACKS] = np.frombuffer(pickle.dumps(self.callbacks.attributes), np.uint8)
        with atomic_path(folder / FILE_NAME) as partial, partial.open("wb") as file:
            np.savez(file, **named)
            file.flush()
            os.fsync(file.fileno())

    @classmethod
    def read(cls, folder: Path) -> "Checkpoint":
        """Read the file.

        Raises:
            DamagedCheckpointError: The file is missing or truncated.
        """
        path = folder / FILE_NAME
        try:
            with np.load(path, allow_pickle=False) as archive:
                head = json.loads(str(archive[_HEAD]))
                callbacks = load_plain(archive[_CALLBACKS].tobytes())
                arrays = [
                    _of_dtype(archive[f"a{i}"], dtype) for i, dtype in enumerate(head["dtypes"])
                ]
        except FileNotFoundError:
            raise DamagedCheckpointError(f"there is no checkpoint at {path}") from None
        except _DAMAGE as error:
            raise DamagedCheckpointError(f"{path} is not a complete checkpoint: {error}") from error
        split = head["num_model"]
        end = split + head["num_optimizer"]
        plain = {name: head[name] for name in _IN_HEAD}
        plain["names"] = [
            VariableName(path, role, tuple(shape), *more)
            for path, role, shape, *more in head["names"]
        ]
        return cls(
            arrays[:split],
            arrays[split:end],
            callbacks=CallbackState(callbacks),
            others=arrays[end:],
            **plain,
        )


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    return repr(value)


def _storable(array: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """View an array of a type unknown to NumPy (bfloat16) as bytes; return others unchanged."""
    return array.view(f"V{array.dtype.itemsize}") if array.dtype.isbuiltin == 2 else array


def _of_dtype(array: "np.ndarray[Any, Any]", dtype: str) -> "np.ndarray[Any, Any]":
    """Return an array in its type, even if NumPy stores that as bytes (bfloat16)."""
    if str(array.dtype) == dtype:
        return array
    import ml_dtypes  # comes with TensorFlow; only half-precision models need it

    return array.view(getattr(ml_dtypes, dtype))
