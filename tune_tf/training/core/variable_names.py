"""Names and roles of a model's variables, which match a checkpoint to a model.

A zero hyperparameter can remove variables: Dropout with rate 0 has no random state, and SGD without
momentum has no slots.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import keras

from tune_tf.errors import CheckpointError
from tune_tf.training.core.scalars import layers_of, optimizers_of

_RANDOM_STATE = "seed_generator_state"

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
        shape: Shape of the variable.
        dtype: Name of its type.
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
    owners = {
        id(variable): f"{layer.path or layer.name}/{number}/{_RANDOM_STATE}"
        for layer in layers_of(model)
        for number, variable in enumerate(v for v in layer.variables if v.name == _RANDOM_STATE)
    }
    found = []
    for variable in model.variables:
        path = owners.get(id(variable), variable.path)
        found.append(_name(variable, path, variable.name, is_random=variable.name == _RANDOM_STATE))
    return [*found, *_optimizer_names(model)]


def match_variables(
    stored: Sequence[VariableName], wanted: Sequence[VariableName]
) -> list[int | None]:
    """Return the index of the stored variable for each wanted one; None for a new one.

    Raises:
        CheckpointError: The stored variables belong to a model of another structure.
    """
    first, second = _required_indices(stored, wanted), _required_indices(wanted, stored)
    if len(first) != len(second):
        raise CheckpointError(
            f"the checkpoint holds {len(stored)} variables, the model and its optimizer have "
            f"{len(wanted)}: it was saved by a trial with a different structure (layer, width or "
            "optimizer)"
        )
    found: list[int | None] = [None] * len(wanted)
    for index, i in zip(first, second, strict=True):
        old, new = stored[index], wanted[i]
        if (old.shape, old.dtype) != (new.shape, new.dtype):
            shapes = [
                str(each.shape) if old.dtype == new.dtype else f"{each.shape} of {each.dtype}"
                for each in (new, old)
            ]
            raise CheckpointError(
                f"variable {new.path} has shape {shapes[0]}, but the checkpoint holds {shapes[1]} "
                f"({old.path}): it was saved by a trial with a different structure"
            )
        if old.role != new.role:
            raise CheckpointError(
                f"variable {new.path} is the {new.role}, but the checkpoint holds the {old.role} "
                f"({old.path}): it was saved by a trial with a different structure"
            )
        found[i] = index
    return found


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
        kind = next(
            (k for k, slots in _OPTIONAL_SLOTS.items() if isinstance(owner, k) and role in slots),
            None,
        )
        is_slot = kind is not None and bool(prefix)
        if is_slot:
            role = f"{role} of {kind.__name__}"  # type: ignore[union-attr]
        yield _name(variable, variable.path, role, is_slot=is_slot)


def _name(variable: Any, path: str, role: str, **flags: bool) -> VariableName:
    return VariableName(path, role, tuple(variable.shape), str(variable.dtype), **flags)
