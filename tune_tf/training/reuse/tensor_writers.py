"""Writers of arrays, tensors, variables and Keras objects for a walk over objects."""

import hashlib
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tune_tf.training.keras_internals import (
    bookkeeping_attributes,
    calls_in_order,
    initializer_seed_attributes,
    seed_attributes,
    table_default,
    trace_settings,
)
from tune_tf.training.reuse.object_walk import ATOMS, IncomparableError, ObjectWalk


def write_keras_object(walk: ObjectWalk, value: Any) -> None:
    """Write the attributes of a Keras object and the calls of a functional model."""
    walk.write_class_of(value)
    skipped, seeds = bookkeeping_attributes(value), seed_attributes(value)
    tokens, masked, owner = walk.tokens, walk.masked, id(value)
    for name, attribute in vars(value).items():
        if name in skipped or name.startswith("_self_"):
            continue
        tokens.append(name)
        if name in seeds or (owner, name) in masked:
            tokens.append("~")
        elif type(attribute) in ATOMS:
            tokens.append(repr(attribute))
        else:
            number = id(attribute)
            masked.update((number, seed) for seed in initializer_seed_attributes(value, name))
            walk.visit(attribute)
    for call in calls_in_order(value):
        walk.write_sequence("call", call)
    tokens.append(";")
    if isinstance(value, keras.optimizers.Optimizer):
        walk.optimizers.append(value)


def write_keras_variable(walk: ObjectWalk, variable: Any) -> None:
    """Write a variable without its value."""
    walk.variables.append(variable)
    walk.tokens.append(variable.path)
    write_keras_object(walk, variable)


def write_variable(walk: ObjectWalk, variable: Any) -> None:
    """Write a TensorFlow variable without its value."""
    walk.variables.append(variable)
    what = (type(variable).__name__, variable.name, variable.shape, variable.dtype)
    walk.tokens.append(f"variable {what} {variable.trainable}")


def write_symbolic(walk: ObjectWalk, tensor: Any) -> None:
    """Write a symbolic tensor of Keras."""
    walk.tokens.append(f"symbolic {tensor.shape} {tensor.dtype} {tensor.sparse}")


def write_array(walk: ObjectWalk, value: Any) -> None:
    """Write an array or scalar of NumPy."""
    array = np.asarray(value)
    walk.tokens.append(f"array {array.dtype.str} {array.dtype} {array.shape}")
    if array.dtype.hasobject:
        walk.write_sequence("objects", array.flat)
    else:
        content = np.ascontiguousarray(array).view(np.uint8).data
        walk.tokens.append(hashlib.blake2b(content, digest_size=16).hexdigest())


def write_array_of_library(walk: ObjectWalk, array: "np.ndarray[Any, Any]") -> None:
    """Write an array of a subclass with further attributes, such as a mask."""
    walk.write_class_of(array)
    write_array(walk, array)
    walk.write_mapping(getattr(array, "__dict__", {}))


def write_tensor(walk: ObjectWalk, tensor: Any) -> None:
    """Write the device and value of a tensor."""
    if not hasattr(tensor, "numpy"):
        raise IncomparableError("a tensor of another graph")
    try:
        value = tensor.numpy()
    except Exception:  # noqa: BLE001  a resource or variant has no value
        raise IncomparableError(f"a tensor of type {tensor.dtype.name}") from None
    walk.tokens.append(tensor.device.rpartition("/")[2])
    write_array(walk, value)


def write_composite(walk: ObjectWalk, tensor: Any) -> None:
    """Write a ragged or sparse tensor."""
    walk.tokens.append(repr(tf.type_spec_from_value(tensor)))
    walk.write_sequence("parts", tf.nest.flatten(tensor, expand_composites=True))


def write_lookup_table(walk: ObjectWalk, table: Any) -> None:
    """Write the contents of a lookup table."""
    walk.write_class_of(table)
    walk.write_sequence("table", (*table.export(), table_default(table)))


def write_traceable(walk: ObjectWalk, function: Any) -> None:
    """Write a ``tf.function``: its Python function and its trace settings."""
    walk.tokens.append("tf.function " + " ".join(map(repr, trace_settings(function))))
    walk.visit(function.python_function)
