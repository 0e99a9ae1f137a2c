"""Fingerprint of everything that a traced program depends on.

Keras' configs omit state that a trace depends on: results of ``adapt``, arguments missing in
``get_config``, attributes of a model, closures. So the fingerprint covers the objects themselves.
"""

import dis
import enum
import functools
import hashlib
import inspect
import itertools
import operator
import re
import threading
import types
import weakref
from collections import defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePath
from typing import Any
from uuid import UUID

import keras
import numpy as np
import tensorflow as tf

from tune_tf.training.keras_internals import undecayed_indices
from tune_tf.training.reuse import tensor_writers
from tune_tf.training.reuse.object_walk import (
    ABSENT,
    ATOMS,
    IncomparableError,
    ObjectWalk,
    ObjectWriter,
    library_name,
)

_WRITTEN_BY_REPR = (
    *(range, slice, np.dtype, np.ufunc, tf.DType, tf.TensorShape, tf.TypeSpec),
    *(PurePath, Decimal, Fraction, UUID, date, time, timedelta, inspect.Signature),
    *(type(NotImplemented), inspect.Parameter),
)
_TABLES = (
    tf.lookup.StaticHashTable,
    tf.lookup.experimental.MutableHashTable,
    tf.lookup.experimental.DenseHashTable,
)
_LOCKS = (type(threading.Lock()), type(threading.RLock()), threading.local)


@dataclass(frozen=True)
class Fingerprint:
    """Fingerprint of the objects that a trace depends on.

    Args:
        key: Equal for objects that give the same trace; None if there is an ``obstacle``.
        variables: All Keras and TensorFlow variables, in an order that equal keys share. The key
            does not cover their values.
        obstacle: Reason why the objects cannot be compared, if so.
    """

    key: str | None
    variables: tuple[Any, ...]
    obstacle: str = ""


def fingerprint(roots: Iterable[Any], masked: Iterable[tuple[Any, str]] = ()) -> Fingerprint:
    """Return the fingerprint of objects and of everything that they refer to.

    It covers automatic names, so models must be built as in a fresh process (see ``build.py``). It
    does not cover files, environment variables, attributes with computed names and patches of
    libraries.

    ``masked`` holds pairs ``(owner, attribute)`` whose values are left out.
    """
    walk = ObjectWalk(_writer_of, masked)
    try:
        for root in roots:
            walk.visit(root)
        for optimizer in walk.optimizers:
            walk.tokens.append(repr(undecayed_indices(optimizer, walk.variables)))
    except Exception as error:  # noqa: BLE001  user code may raise anything
        obstacle = str(error) if isinstance(error, IncomparableError) else repr(error)
        return Fingerprint(None, tuple(walk.variables), obstacle)
    text = "\0".join(walk.tokens)
    key = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return Fingerprint(key, tuple(walk.variables))


def global_settings() -> tuple[Any, ...]:
    """Return the settings of Keras and TensorFlow that the numbers of a model depend on."""
    return (
        keras.config.floatx(),
        keras.config.epsilon(),
        keras.config.image_data_format(),
        keras.config.dtype_policy().name,
        keras.config.is_flash_attention_enabled(),
        tf.config.optimizer.get_jit(),
        tf.config.experimental.tensor_float_32_execution_enabled(),
    )


def method_dependencies(owner: Any, name: str) -> tuple[Any, ...]:
    """Return the objects that a method depends on, as roots of a fingerprint.

    These are the attributes and methods of ``owner`` that the method names, or ``owner`` itself if
    the method uses ``self`` in another way (as an argument or by ``super()``).
    """
    values: dict[str, Any] = {}
    pending = [name]
    while pending:
        attribute = pending.pop()
        if attribute in values:
            continue
        if attribute in vars(owner):
            values[attribute] = vars(owner)[attribute]
            continue
        value = inspect.getattr_static(type(owner), attribute, ABSENT)
        values[attribute] = value
        parts = (value.fget, value.fset) if isinstance(value, property) else (value,)
        for function in parts:
            if isinstance(function, types.FunctionType):
                if (names := _attributes_of_self(function.__code__)) is None:
                    return (owner,)
                pending += names
            elif type(function) not in ATOMS:
                return (owner,)  # it may read any attribute of the object
    return tuple(itertools.chain.from_iterable(sorted(values.items())))


@functools.lru_cache(maxsize=4096)
def _attributes_of_self(code: types.CodeType) -> tuple[str, ...] | None:
    """Return the attributes that a method reads of ``self``; None if it uses ``self`` otherwise."""
    if not code.co_argcount or "super" in code.co_names:
        return None
    this = code.co_varnames[0]
    if this in code.co_cellvars:
        return None
    attributes = set()
    is_next = False
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("EXTENDED_ARG", "NOP"):
            continue
        if is_next:
            if instruction.opname not in ("LOAD_ATTR", "LOAD_METHOD"):
                return None
            attributes.add(instruction.argval)
        names = instruction.argval if isinstance(instruction.argval, tuple) else ()
        if this in names or (instruction.argval == this and "STORE_FAST" in instruction.opname):
            return None
        is_next = instruction.argval == this and instruction.opname.startswith("LOAD_FAST")
    return tuple(sorted(attributes))


def _parts_writer(get: Callable[[Any], Any]) -> ObjectWriter:
    """Return the writer of objects that are determined by the parts that ``get`` returns."""

    def write(walk: ObjectWalk, value: Any) -> None:
        walk.tokens.append(type(value).__name__)
        walk.visit(get(value))

    return write


def _write_list(walk: ObjectWalk, value: Iterable[Any]) -> None:
    walk.write_sequence("list", value)


def _write_type_name(walk: ObjectWalk, value: Any) -> None:
    """Write an object whose state no trace depends on, such as a lock."""
    walk.tokens.append(type(value).__name__)


def _write_enum(walk: ObjectWalk, member: enum.Enum) -> None:
    kind = type(member)
    walk.tokens.append(f"{kind.__module__}.{kind.__qualname__} {member.name}")
    walk.visit(member.value)


_write_reduced = _parts_writer(operator.methodcaller("__reduce__"))
_write_wrapped = _parts_writer(operator.attrgetter("__wrapped__"))

_BY_TYPE: dict[type, ObjectWriter] = {
    list: _write_list,
    np.ndarray: tensor_writers.write_array,
    dict: ObjectWalk.write_mapping,
    set: ObjectWalk.write_set,
    frozenset: ObjectWalk.write_set,
    types.MappingProxyType: ObjectWalk.write_mapping,
    types.FunctionType: ObjectWalk.write_function,
    types.CodeType: ObjectWalk.write_code,
    types.MethodType: _parts_writer(operator.attrgetter("__func__", "__self__")),
    types.ModuleType: ObjectWalk.write_module,
    types.BuiltinFunctionType: ObjectWalk.write_builtin,
    types.MethodWrapperType: ObjectWalk.write_builtin,
    types.WrapperDescriptorType: ObjectWalk.write_text,
    types.MethodDescriptorType: ObjectWalk.write_text,
    types.GetSetDescriptorType: ObjectWalk.write_text,
    types.SimpleNamespace: _parts_writer(vars),
    functools.partial: _parts_writer(operator.attrgetter("func", "args", "keywords", "__dict__")),
    operator.itemgetter: _write_reduced,
    operator.attrgetter: _write_reduced,
    operator.methodcaller: _write_reduced,
    type(vars(namedtuple("Pair", "first"))["first"]): _write_reduced,
    type(functools.cache(lambda: None)): _write_wrapped,
    classmethod: _write_wrapped,
    staticmethod: _write_wrapped,
    property: _parts_writer(operator.attrgetter("fget", "fset", "fdel")),
    weakref.ref: _parts_writer(operator.methodcaller("__call__")),
    re.Pattern: _parts_writer(operator.attrgetter("pattern", "flags")),
    type(tf.function(lambda: None)): tensor_writers.write_traceable,
}
"""Writers of exactly these types and, once they were visited, of classes of libraries."""

_BY_BASE: tuple[tuple[Any, ObjectWriter], ...] = (
    (type, ObjectWalk.write_class),
    (keras.Variable, tensor_writers.write_keras_variable),
    (keras.KerasTensor, tensor_writers.write_symbolic),
    (tf.Variable, tensor_writers.write_variable),
    ((tf.RaggedTensor, tf.SparseTensor, tf.IndexedSlices), tensor_writers.write_composite),
    (tf.Tensor, tensor_writers.write_tensor),
    (_TABLES, tensor_writers.write_lookup_table),
    (np.generic, tensor_writers.write_array),
    (enum.Enum, _write_enum),
    (_WRITTEN_BY_REPR, ObjectWalk.write_text),
    (_LOCKS, _write_type_name),
)
_LIBRARY_CONTAINERS: tuple[tuple[type, ObjectWriter], ...] = (
    (np.ndarray, tensor_writers.write_array_of_library),
    (defaultdict, _parts_writer(lambda value: (value.default_factory, dict(value)))),
    (dict, ObjectWalk.write_mapping),
    (list, _write_list),
    (deque, _parts_writer(lambda value: (value.maxlen, *value))),
    (set, ObjectWalk.write_set),
)


def _writer_of(value: Any) -> ObjectWriter:
    kind = type(value)
    write = _BY_TYPE.get(kind)
    if write is None:
        is_library = library_name(kind) is not None
        by_base = (*_BY_BASE, *(_LIBRARY_CONTAINERS if is_library else ()))
        is_of_keras = any(base.__module__.startswith("keras.") for base in kind.__mro__)
        write = ObjectWalk.write_object
        if is_of_keras and hasattr(value, "__dict__"):
            write = tensor_writers.write_keras_object
        write = next((each for kinds, each in by_base if isinstance(value, kinds)), write)
        if is_library:  # the table would keep a user's class alive
            _BY_TYPE[kind] = write
    return write
