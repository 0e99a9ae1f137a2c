"""Structure of a model: what its traced graph depends on besides variables and traced scalars.

A graph is shared only between models of Keras' own classes and functions, whose state is in their
attributes. Keras' configs omit some of it (results of ``adapt``, ``Huber.delta``, sharing), so the
attributes themselves are compared. Anything else may read what no comparison sees.
"""

import hashlib
import re
import sys
import types
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tune_tf.training.keras_internals import (
    bookkeeping_attributes,
    calls_in_order,
    seed_attributes,
)
from tune_tf.training.process_state import settings

_ATOMS = frozenset((str, int, float, bool, type(None), bytes, complex, type(...)))
_BY_REPR = (range, slice, np.dtype, tf.DType, tf.TensorShape, tf.TypeSpec, type(NotImplemented))
_CONTAINERS = (list, tuple, dict, set)
_DRAW_WHILE_TRACED = (keras.layers.AugMix,)  # by Python's generator
_LIBRARIES = frozenset(("keras", "tensorflow", "numpy", "builtins", "collections", "enum"))
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, type)


class Structure(NamedTuple):
    """Structure of one or several models.

    Args:
        key: Equal for models whose graphs are the same; None if there is an ``obstacle``.
        variables: All Keras variables, in an order that equal keys share. The key does not cover
            their values.
        obstacle: What the graph would run that is not Keras' own; empty if nothing.
    """

    key: str | None
    variables: tuple[Any, ...]
    obstacle: str = ""


def structure_of(roots: Iterable[Any], masked: Iterable[tuple[Any, str]] = ()) -> Structure:
    """Return the structure of objects; values of ``masked`` pairs (owner, attribute) are left out.

    It covers automatic names, so models must be built as in a fresh process (see ``build.py``).
    """
    walk = _Walk(masked)
    try:
        for root in roots:
            walk.visit(root)
    except _NotOfKerasError as error:
        return Structure(None, tuple(walk.variables), str(error))
    walk.tokens.append(repr((*settings(), keras.config.is_flash_attention_enabled())))
    text = "\0".join(walk.tokens).encode("utf-8", "surrogatepass")
    key = hashlib.blake2b(text, digest_size=16).hexdigest()
    return Structure(key, tuple(walk.variables))


class _NotOfKerasError(Exception):
    """Something that is not Keras' own; ends the walk."""


class _Walk:
    """Walk over the attributes of Keras' objects; a repeated object is written as its number."""

    def __init__(self, masked: Iterable[tuple[Any, str]]) -> None:
        self.tokens: list[str] = []
        self.variables: list[Any] = []
        self._masked = {(id(owner), attribute) for owner, attribute in masked}
        self._numbers: dict[int, int] = {}
        self._seen: list[Any] = []  # keeps objects alive, so that ids stay unique

    def visit(self, value: Any) -> None:
        kind = type(value)
        if kind in _ATOMS:
            self.tokens.append(repr(value))
        elif kind is tuple:
            self._sequence("tuple", value)
        else:
            number = self._numbers.setdefault(id(value), len(self._seen))
            if number < len(self._seen):
                self.tokens.append(f"#{number}")
            else:
                self._seen.append(value)
                self._write(value, kind)

    def _sequence(self, tag: str, values: Sequence[Any]) -> None:
        self.tokens.append(f"{tag}{len(values)}")
        for value in values:
            self.visit(value)

    def _write(self, value: Any, kind: type) -> None:
        if isinstance(value, keras.KerasTensor):
            self.tokens.append(f"symbolic {value.shape} {value.dtype} {value.sparse}")
        elif kind.__module__.startswith("keras.") and not isinstance(value, _CONTAINERS):
            self._keras_object(value, kind)
        elif isinstance(value, _CONTAINERS) and _is_library(kind):
            self._container(value)
        elif isinstance(value, np.ndarray | np.generic):
            self._array(np.asarray(value))
        elif isinstance(value, tf.Tensor):
            self._tensor(value)
        else:
            self._plain(value, kind)

    def _plain(self, value: Any, kind: type) -> None:
        if isinstance(value, _BY_REPR):
            self.tokens.append(f"{kind.__name__} {value!r}")
        elif isinstance(value, _FUNCTIONS) or _is_ours(value):
            self._named(value)
        elif isinstance(value, types.ModuleType) and value.__name__.startswith("keras."):
            self.tokens.append(value.__name__)
        elif isinstance(value, re.Pattern):
            self._sequence("pattern", (value.pattern, value.flags))
        else:
            raise _NotOfKerasError(f"{kind.__module__}.{kind.__qualname__}")

    def _container(self, value: Any) -> None:
        if isinstance(value, dict):
            self._sequence("dict", [part for pair in value.items() for part in pair])
        elif isinstance(value, set) and value:
            raise _NotOfKerasError("a set of objects, such as variables without weight decay")
        else:
            self._sequence(type(value).__name__, value)

    def _array(self, array: "np.ndarray[Any, Any]") -> None:
        if array.dtype.hasobject:
            raise _NotOfKerasError("an array of objects")
        content = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        digest = hashlib.blake2b(content, digest_size=16).hexdigest()
        self.tokens.append(f"array {array.dtype.str} {array.dtype} {array.shape} {digest}")

    def _tensor(self, tensor: Any) -> None:
        try:
            value = tensor.numpy()
        except Exception:  # noqa: BLE001  of another graph, or a resource
            raise _NotOfKerasError(f"a tensor of type {tensor.dtype.name}") from None
        self.tokens.append(tensor.device.rpartition("/")[2])
        self.visit(value)

    def _named(self, value: Any) -> None:
        name = f"{value.__module__}.{value.__qualname__}"
        if _is_ours(value):  # set on optimizers, where it follows from the replicas
            self.tokens.append(name)
            return
        if not _is_library(value) or _found(value.__module__, value.__qualname__) is not value:
            raise _NotOfKerasError(name)
        self.tokens.append(name)

    def _keras_object(self, value: Any, kind: type) -> None:
        if not hasattr(value, "__dict__"):
            raise _NotOfKerasError(f"{kind.__module__}.{kind.__qualname__}")
        for base in kind.__mro__:
            _check_class(base)
        name = f"{kind.__module__}.{kind.__qualname__}"
        if isinstance(value, _DRAW_WHILE_TRACED):
            raise _NotOfKerasError(f"{name}, which draws while it is traced")
        self.tokens.append(name)
        if isinstance(value, keras.Variable):
            self.variables.append(value)
            self.tokens.append(value.path)
        self._attributes(value)
        for call in calls_in_order(value):
            self._sequence("call", call)
        self.tokens.append(";")

    def _attributes(self, value: Any) -> None:
        skipped, seeds = bookkeeping_attributes(value), seed_attributes(value)
        for name, attribute in vars(value).items():
            if name.startswith("_self_"):  # TensorFlow's tracking
                continue
            if name in skipped:
                _check_skipped(attribute)
                continue
            self.tokens.append(name)
            if name in seeds or (id(value), name) in self._masked:
                self.tokens.append("~")
            else:
                self.visit(attribute)


def _is_ours(value: Any) -> bool:
    """Return whether a function or method belongs to the training of this package."""
    kinds = types.FunctionType | types.MethodType
    return isinstance(value, kinds) and value.__module__.startswith("tune_tf.training.")


def _is_library(value: Any) -> bool:
    """Return whether a class or function belongs to a library that it cannot be told from."""
    return str(value.__module__).partition(".")[0] in _LIBRARIES


def _found(module: str, name: str) -> Any:
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _check_skipped(attribute: Any) -> None:
    """Refuse a function of the user's in the place of bookkeeping, such as another ``build``."""
    function = getattr(attribute, "__wrapped__", attribute)
    if isinstance(function, types.FunctionType | types.MethodType) and not _is_library(function):
        raise _NotOfKerasError(f"{function.__module__}.{function.__qualname__}")


_checked: dict[type, tuple[int, ...]] = {}  # ids of its attributes when a class was checked


def _check_class(kind: type) -> None:
    """Refuse a class of Keras with a method of the user's."""
    ids = tuple(map(id, vars(kind).values()))
    if not kind.__module__.startswith("keras.") or _checked.get(kind) == ids:
        return
    for name, value in vars(kind).items():
        for function in _functions_of(value):
            origin = function.__globals__.get("__name__", "")  # no decorator copies that
            if origin.partition(".")[0] not in _LIBRARIES:
                raise _NotOfKerasError(f"{kind.__qualname__}.{name} of {origin}")
    _checked[kind] = ids


def _functions_of(value: Any) -> list[types.FunctionType]:
    """Return the functions in an attribute of a class, such as those of a property."""
    inner = [value, *(getattr(value, name, None) for name in ("fget", "fset", "fdel", "func"))]
    inner += [getattr(value, "__func__", None)]
    return [each for each in inner if isinstance(each, types.FunctionType)]
