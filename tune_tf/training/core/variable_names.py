"""What each variable of a model and its optimizer is, and which of them a value of zero leaves out.

A Dropout of rate 0 has no random state, and SGD without momentum no slots for it.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import keras

from tune_tf.errors import CheckpointError
from tune_tf.training.core.scalars import layers_of, optimizers_of

_RANDOM_STATE = "seed_generator_state"

# Slots that an optimizer has or not by its settings, which begin as zeros at any time.
_OPTIONAL_SLOTS: dict[type, tuple[str, ...]] = {
    keras.optimizers.SGD: ("momentum",),
    keras.optimizers.RMSprop: ("momentum", "average_gradient"),
    keras.optimizers.Adam: ("velocity_hat",),
}


class VariableName(NamedTuple):
    """What a variable is.

    Args:
        path: Its path; that of a random state begins with its layer's.
        role: What it is to its layer or optimizer, such as ``kernel`` or ``velocity``.
        shape: Its shape.
        dtype: Its type.
        is_random: Whether it is the state of a random generator.
        is_slot: Whether it is a slot that the optimizer may be without.
    """

    path: str
    role: str
    shape: tuple[int, ...]
    dtype: str
    is_random: bool = False
    is_slot: bool = False


def variable_names(model: keras.Model) -> list[VariableName]:
    """Return what the variables of a model are, and then those of its built optimizer."""
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
    """Return which stored variable each wanted one takes; None for one that begins anew.

    Raises:
        CheckpointError: They are of another structure.
    """
    first, second = _without_single(stored, wanted), _without_single(wanted, stored)
    if len(first) != len(second):
        raise CheckpointError(
            f"the checkpoint holds {len(stored)} variables, the model and its optimizer have "
            f"{len(wanted)}: it was saved by a trial of another structure (another layer, "
            "width or optimizer)"
        )
    found: list[int | None] = [None] * len(wanted)
    for index, i in zip(first, second, strict=True):
        old, new = stored[index], wanted[i]
        if (old.shape, old.dtype) != (new.shape, new.dtype):
            told = [
                str(each.shape) if old.dtype == new.dtype else f"{each.shape} of {each.dtype}"
                for each in (new, old)
            ]
            raise CheckpointError(
                f"variable {new.path} has shape {told[0]}, but the checkpoint holds {told[1]} "
                f"({old.path}): it was saved by a trial of another structure"
            )
        if old.role != new.role:
            raise CheckpointError(
                f"variable {new.path} is the {new.role}, but the checkpoint holds the {old.role} "
                f"({old.path}): it was saved by a trial of another structure"
            )
        found[i] = index
    return found


def _without_single(side: Sequence[VariableName], other: Sequence[VariableName]) -> list[int]:
    """Return which variables of one side the other one may not be without, or has."""
    if [name.role for name in side] == [name.role for name in other]:
        return list(range(len(side)))  # also where layers are named otherwise
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
