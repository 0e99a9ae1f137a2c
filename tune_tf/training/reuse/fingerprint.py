"""Fingerprint of everything that a traced program depends on.

Keras' configs omit state that a trace depends on: results of ``adapt``, arguments missing in
``get_config``, attributes of a model, functions and their closures. The fingerprint therefore
covers the objects themselves: attributes, containers, code and its names, array contents, and which
references lead to one object.
"""

import dis
import enum
import functools
import hashlib
import inspect
import itertools
import operator
import re
import sys
import threading
import types
import weakref
from collections import defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable, Mapping
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

from tune_tf.training.keras_internals import (
    bookkeeping_attributes,
    calls_in_order,
    initializer_seed_attributes,
    seed_attributes,
    table_default,
    undecayed_indices,
)

_LIBRARIES = frozenset(
    (
        *("keras", "tensorflow", "numpy", "scipy", "pandas", "sklearn", "ml_dtypes", "optree"),
        *("absl", "ray", "tune_tf", "builtins", *sys.stdlib_module_names),
    )
)
"""Packages whose classes and functions are compared by name; all others by content."""
_ATOMS = frozenset((str, int, float, bool, type(None), bytes, complex, type(...)))
_BY_TEXT = (
    *(range, slice, np.dtype, np.ufunc, tf.DType, tf.TensorShape, tf.TypeSpec),
    *(PurePath, Decimal, Fraction, UUID, date, time, timedelta, inspect.Signature),
    *(type(NotImplemented), inspect.Parameter),
)
_NOT_IN_CLASSES = frozenset(
    (
        *("__dict__", "__weakref__", "__doc__", "__module__", "__annotations__", "__qualname__"),
        *("__dataclass_fields__", "__dataclass_params__", "__match_args__", "__orig_bases__"),
        *("__parameters__", "__abstractmethods__", "_abc_impl", "__firstlineno__"),
        "__static_attributes__",
    )
)
_MAX_OBJECTS = 200_000


@dataclass(frozen=True)
class Fingerprint:
    """Fingerprint of the objects that a trace depends on.

    Args:
        key: Equal for objects that give the same trace; None if an object has state that cannot be
            compared.
        variables: All Keras and TensorFlow variables, in an order that equal keys share. The key
            does not cover their values.
        obstacle: Reason why there is no key, if so.
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
    walk = _Walk(masked)
    try:
        for root in roots:
            walk.visit(root)
        walk.finish()
    except Exception as error:  # noqa: BLE001  user code may raise anything
        obstacle = str(error) if isinstance(error, _Incomparable) else repr(error)
        return Fingerprint(None, tuple(walk.variables), obstacle)
    text = "\0".join(walk.tokens)
    key = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return Fingerprint(key, tuple(walk.variables))


def method_dependencies(owner: Any, name: str) -> tuple[Any, ...]:
    """Return the objects that a method depends on, as roots of a fingerprint.

    These are the attributes and methods of ``owner`` that the method names, or ``owner`` itself if
    the method uses ``self`` in another way (as an argument or by ``super()``).
    """
    found: dict[str, Any] = {}
    waiting = [name]
    while waiting:
        attribute = waiting.pop()
        if attribute in found:
            continue
        own = vars(owner).get(attribute, _ABSENT)
        value = inspect.getattr_static(type(owner), attribute, _ABSENT) if own is _ABSENT else own
        found[attribute] = value
        parts = (value.fget, value.fset) if isinstance(value, property) else (value,)
        for function in parts:
            if own is _ABSENT and isinstance(function, types.FunctionType):
                if (used := _attributes_of_self(function.__code__)) is None:
                    return (owner,)
                waiting += used
            elif own is _ABSENT and type(function) not in _ATOMS:
                return (owner,)  # it may read any attribute of the object
    return tuple(itertools.chain.from_iterable(sorted(found.items())))


class _Incomparable(Exception):  # noqa: N818  control flow that ends the walk
    """Object with state that cannot be compared."""


class _Walk:
    """Walk over objects that writes tokens; a repeated object is written as its number."""

    def __init__(self, masked: Iterable[tuple[Any, str]]) -> None:
        self.tokens: list[str] = []
        self.variables: list[Any] = []
        self._masked = {(id(owner), attribute) for owner, attribute in masked}
        self._numbers: dict[int, int] = {}
        self._seen: list[Any] = []  # keeps objects alive, so that ids stay unique
        self._optimizers: list[Any] = []
        self._modules: set[tuple[str, tuple[str, ...]]] = set()

    def visit(self, value: Any) -> None:
        kind = type(value)
        if kind in _ATOMS:
            self.tokens.append(repr(value))
        elif kind is tuple:
            self.sequence("tuple", value)
        elif self.is_new(value):
            self.contents(value, kind)

    def finish(self) -> None:
        """Write what depends on all variables."""
        for optimizer in self._optimizers:
            self.tokens.append(repr(undecayed_indices(optimizer, self.variables)))

    def is_new(self, value: Any) -> bool:
        number = self._numbers.setdefault(id(value), len(self._seen))
        if number < len(self._seen):
            self.tokens.append(f"#{number}")
            return False
        self._seen.append(value)
        if number > _MAX_OBJECTS:
            raise _Incomparable(f"more than {_MAX_OBJECTS} objects are reached")
        return True

    def contents(self, value: Any, kind: type) -> None:
        write = _WRITERS.get(kind)
        if write is None:
            write = _writer_for(value, kind)
            if _name_in_library(kind) is not None:  # the table would keep a user's class alive
                _WRITERS[kind] = write
        write(self, value)

    def sequence(self, tag: str, values: Iterable[Any]) -> None:
        values = list(values)
        self.tokens.append(f"{tag}{len(values)}")
        for value in values:
            self.visit(value)

    def mapping(self, mapping: Mapping[Any, Any]) -> None:
        self.tokens.append(f"dict{len(mapping)}")
        for key, value in mapping.items():
            self.visit(key)
            self.visit(value)

    def unordered(self, values: Iterable[Any]) -> None:
        """Write a set, whose own order depends on hashes and so on addresses."""
        members = list(values)
        if all(map(_is_plain, members)):
            self.sequence("set", sorted(members, key=repr))
        elif len(members) == 1 or all(id(member) in self._numbers for member in members):
            self.sequence("set", sorted(members, key=lambda m: self._numbers.get(id(m), 0)))
        else:
            raise _Incomparable("a set holds objects that have no order")

    def keras_object(self, value: Any) -> None:
        self.class_of(value)
        skipped, seeds = bookkeeping_attributes(value), seed_attributes(value)
        tokens, masked, owner = self.tokens, self._masked, id(value)
        for name, attribute in vars(value).items():
            if name in skipped or name.startswith("_self_"):
                continue
            tokens.append(name)
            if name in seeds or (owner, name) in masked:
                tokens.append("~")
            elif type(attribute) in _ATOMS:
                tokens.append(repr(attribute))
            else:
                number = id(attribute)
                masked.update((number, seed) for seed in initializer_seed_attributes(value, name))
                self.visit(attribute)
        for call in calls_in_order(value):
            self.sequence("call", call)
        tokens.append(";")
        if isinstance(value, keras.optimizers.Optimizer):
            self._optimizers.append(value)

    def keras_variable(self, variable: Any) -> None:
        self.variables.append(variable)
        self.tokens.append(variable.path)
        self.keras_object(variable)

    def variable(self, variable: Any) -> None:
        self.variables.append(variable)
        what = (type(variable).__name__, variable.name, variable.shape, variable.dtype)
        self.tokens.append(f"variable {what} {variable.trainable}")

    def symbolic(self, tensor: Any) -> None:
        self.tokens.append(f"symbolic {tensor.shape} {tensor.dtype} {tensor.sparse}")

    def array(self, array: "np.ndarray[Any, Any]") -> None:
        self.tokens.append(f"array {array.dtype.str} {array.dtype} {array.shape}")
        if array.dtype.hasobject:
            self.sequence("objects", array.flat)
        else:
            content = np.ascontiguousarray(array).view(np.uint8).data
            self.tokens.append(hashlib.blake2b(content, digest_size=16).hexdigest())

    def array_of_library(self, array: "np.ndarray[Any, Any]") -> None:
        """Write an array of a subclass with further attributes, such as a mask."""
        self.class_of(array)
        self.array(np.asarray(array))
        self.mapping(getattr(array, "__dict__", {}))

    def scalar(self, scalar: "np.generic") -> None:
        self.array(np.asarray(scalar))

    def tensor(self, tensor: Any) -> None:
        if not hasattr(tensor, "numpy"):
            raise _Incomparable("a tensor of another graph")
        try:
            value = tensor.numpy()
        except Exception:  # noqa: BLE001  a resource or variant has no value
            raise _Incomparable(f"a tensor of type {tensor.dtype.name}") from None
        self.tokens.append(tensor.device.rpartition("/")[2])
        self.array(np.asarray(value))

    def composite(self, tensor: Any) -> None:
        self.tokens.append(repr(tf.type_spec_from_value(tensor)))
        self.sequence("parts", tf.nest.flatten(tensor, expand_composites=True))

    def table(self, table: Any) -> None:
        self.class_of(table)
        self.sequence("table", (*table.export(), table_default(table)))

    def text(self, value: Any) -> None:
        self.tokens.append(f"{type(value).__name__} {value!r}")

    def enum(self, member: enum.Enum) -> None:
        self.class_name(type(member))
        self.tokens.append(member.name)
        self.visit(member.value)

    def class_name(self, kind: type) -> None:
        self.tokens.append(f"{kind.__module__}.{kind.__qualname__}")

    def class_of(self, value: Any) -> None:
        kind = type(value)
        name = _name_in_library(kind)
        if name is None:
            self.visit(kind)
        else:
            self.tokens.append(name)

    def class_(self, kind: type) -> None:
        name = _name_in_library(kind)
        if name is not None:
            self.tokens.append(name)
            return
        self.tokens.append(f"class {kind.__module__}.{kind.__qualname__}")
        self.sequence("bases", kind.__bases__)
        for attribute, value in vars(kind).items():
            if attribute not in _NOT_IN_CLASSES and not _is_slot(value):
                self.tokens.append(attribute)
                self.visit(value)
        self.tokens.append(";")

    def function(self, function: types.FunctionType) -> None:
        name = _name_in_library(function)
        if name is not None:
            self.tokens.append(name)
            return
        self.tokens.append(f"function {function.__module__}.{function.__qualname__}")
        self.visit(function.__code__)
        self.visit(function.__defaults__)
        self.visit(function.__kwdefaults__)
        self.sequence("cells", map(_cell_contents, function.__closure__ or ()))
        self.mapping(vars(function))
        if is_library(function.__module__):
            return  # made by a library function, so its names are the library's
        looked_up, imported, names = _names_in(function.__code__)
        for name in looked_up:
            self.tokens.append(name)
            if name in function.__globals__:
                self.global_(function.__globals__[name], names)
        for name in imported:
            if name in sys.modules:
                self.global_(sys.modules[name], names)

    def global_(self, value: Any, names: tuple[str, ...]) -> None:
        if isinstance(value, types.ModuleType):
            self.module(value, names)
        else:
            self.visit(value)

    def module(self, module: types.ModuleType, names: tuple[str, ...] = ()) -> None:
        """Write the attributes of a module that code may refer to by these names."""
        self.tokens.append(f"module {module.__name__}")
        if is_library(module.__name__) or (module.__name__, names) in self._modules:
            return
        self._modules.add((module.__name__, names))
        for name in names:
            if name in vars(module):
                self.tokens.append(name)
                self.global_(vars(module)[name], names)

    def code(self, code: types.CodeType) -> None:
        self.tokens.append(
            f"code {code.co_code!r} {code.co_names} {code.co_varnames} {code.co_freevars} "
            f"{code.co_cellvars} {code.co_flags} {code.co_argcount} {code.co_kwonlyargcount} "
            f"{code.co_posonlyargcount} {code.co_exceptiontable!r}"
        )
        self.sequence("constants", code.co_consts)

    def method(self, method: types.MethodType) -> None:
        self.tokens.append("method")
        self.visit(method.__func__)
        self.visit(method.__self__)

    def builtin(self, function: types.BuiltinFunctionType) -> None:
        owner = function.__self__
        self.tokens.append(f"builtin {function.__module__}.{function.__qualname__}")
        if owner is not None and not isinstance(owner, types.ModuleType | type):
            self.visit(owner)

    def partial(self, partial: "functools.partial[Any]") -> None:
        self.sequence("partial", (partial.func, partial.args, partial.keywords, vars(partial)))

    def reduced(self, value: Any) -> None:
        self.sequence(type(value).__name__, value.__reduce__()[1])

    def wrapper(self, wrapper: Any) -> None:
        self.tokens.append(type(wrapper).__name__)
        self.visit(wrapper.__wrapped__)

    def property_(self, value: property) -> None:
        self.sequence("property", (value.fget, value.fset, value.fdel))

    def traceable(self, function: Any) -> None:
        """Write a ``tf.function``: its Python function and its trace settings."""
        settings = (
            getattr(function, f"_{name}", None)
            for name in ("jit_compile", "autograph", "input_signature", "reduce_retracing")
        )
        self.tokens.append("tf.function " + " ".join(map(repr, settings)))
        self.visit(function.python_function)

    def weak(self, reference: "weakref.ref[Any]") -> None:
        self.tokens.append("weak")
        self.visit(reference())

    def nothing(self, value: Any) -> None:
        """Write an object whose state no trace depends on, such as a lock."""
        self.tokens.append(type(value).__name__)

    def object_(self, value: Any) -> None:
        """Write an object of a Python class, whose state is visible, unlike that of C classes."""
        kind = type(value)
        if _hides_state(kind, value):
            raise _Incomparable(
                f"{kind.__module__}.{kind.__qualname__} has state that cannot be compared"
            )
        self.class_of(value)
        if isinstance(value, dict):
            self.mapping(value)
        elif isinstance(value, list | tuple | deque):
            self.sequence("items", (getattr(value, "maxlen", None), *value))
        elif isinstance(value, set | frozenset):
            self.unordered(value)
        elif isinstance(value, str | int | float | bytes | complex):
            plain: Any = next(base for base in kind.__mro__ if base in _ATOMS)
            self.tokens.append(plain.__repr__(value))
        for base in kind.__mro__:
            for name in _slots_of(base):
                self.tokens.append(name)
                self.visit(getattr(value, name, _ABSENT))
        for name, attribute in getattr(value, "__dict__", {}).items():
            if not name.startswith("_self_"):  # TensorFlow's tracking
                self.tokens.append(name)
                self.visit(attribute)
        self.tokens.append(";")


_CONTAINERS = (dict, list, tuple, set, frozenset, deque, str, int, float, bytes, complex)
_ABSENT = object()
_TABLES = (
    tf.lookup.StaticHashTable,
    tf.lookup.experimental.MutableHashTable,
    tf.lookup.experimental.DenseHashTable,
)
_TracedFunction = type(tf.function(lambda: None))

_Writer = Callable[[_Walk, Any], None]
_WRITERS: dict[type, _Writer] = {
    list: lambda walk, value: walk.sequence("list", value),
    np.ndarray: _Walk.array,
    dict: _Walk.mapping,
    set: _Walk.unordered,
    frozenset: _Walk.unordered,
    types.MappingProxyType: _Walk.mapping,
    types.FunctionType: _Walk.function,
    types.CodeType: _Walk.code,
    types.MethodType: _Walk.method,
    types.ModuleType: _Walk.module,
    types.BuiltinFunctionType: _Walk.builtin,
    types.MethodWrapperType: _Walk.builtin,
    types.WrapperDescriptorType: _Walk.text,
    types.MethodDescriptorType: _Walk.text,
    types.GetSetDescriptorType: _Walk.text,
    functools.partial: _Walk.partial,
    operator.itemgetter: _Walk.reduced,
    operator.attrgetter: _Walk.reduced,
    operator.methodcaller: _Walk.reduced,
    type(vars(namedtuple("Pair", "first"))["first"]): _Walk.reduced,
    type(functools.cache(lambda: None)): _Walk.wrapper,
    classmethod: _Walk.wrapper,
    staticmethod: _Walk.wrapper,
    property: _Walk.property_,
    weakref.ref: _Walk.weak,
    re.Pattern: lambda walk, value: walk.sequence("pattern", (value.pattern, value.flags)),
    types.SimpleNamespace: lambda walk, value: walk.mapping(vars(value)),
    _TracedFunction: _Walk.traceable,
}


def _writer_for(value: Any, kind: type) -> _Writer:
    for kinds, write in _BY_BASE:
        if isinstance(value, kinds):
            return write
    if _name_in_library(kind) is not None:
        for container, write in _LIBRARY_CONTAINERS:
            if isinstance(value, container):
                return write
    is_of_keras = any(base.__module__.startswith("keras.") for base in kind.__mro__)
    if is_of_keras and hasattr(value, "__dict__"):
        return _Walk.keras_object
    return _Walk.object_


_BY_BASE: tuple[tuple[Any, _Writer], ...] = (
    (type, _Walk.class_),
    (keras.Variable, _Walk.keras_variable),
    (keras.KerasTensor, _Walk.symbolic),
    (tf.Variable, _Walk.variable),
    ((tf.RaggedTensor, tf.SparseTensor, tf.IndexedSlices), _Walk.composite),
    (tf.Tensor, _Walk.tensor),
    (_TABLES, _Walk.table),
    (np.generic, _Walk.scalar),
    (enum.Enum, _Walk.enum),
    (_BY_TEXT, _Walk.text),
    ((type(threading.Lock()), type(threading.RLock()), threading.local), _Walk.nothing),
)
_LIBRARY_CONTAINERS: tuple[tuple[type, _Writer], ...] = (
    (np.ndarray, _Walk.array_of_library),
    (defaultdict, lambda walk, value: walk.sequence("", (value.default_factory, dict(value)))),
    (dict, _Walk.mapping),
    (list, lambda walk, value: walk.sequence("list", value)),
    (deque, lambda walk, value: walk.sequence("deque", (value.maxlen, *value))),
    (set, _Walk.unordered),
)

_names: dict[Any, str] = {}


def _name_in_library(value: Any) -> str | None:
    """Return the full name of a library's class or function; None if the name does not find it."""
    try:
        return _names[value]
    except (KeyError, TypeError):
        pass
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not (isinstance(module, str) and isinstance(name, str) and is_library(module)):
        return None
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is not value:
        return None
    return _names.setdefault(value, f"{module}.{name}")


def is_library(module: str) -> bool:
    """Return whether a module belongs to a library that is compared by names."""
    return module.partition(".")[0] in _LIBRARIES


def _hides_state(kind: type, value: Any) -> bool:
    """Return whether objects of a class have state that is invisible to Python."""
    for base in kind.__mro__[:-1]:
        made_by_c = isinstance(vars(base).get("__new__"), types.BuiltinFunctionType)
        if made_by_c and not issubclass(base, _CONTAINERS):
            return True
    has_attributes = hasattr(value, "__dict__") or kind is object
    return not has_attributes and not any("__slots__" in vars(base) for base in kind.__mro__)


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple | frozenset):
        return all(map(_is_plain, value))
    return type(value) in _ATOMS


def _cell_contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return NotImplemented  # the name has no value yet


@functools.lru_cache(maxsize=4096)
def _names_in(
    code: types.CodeType,
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return the globals, the imports and all names of code and the code nested in it."""
    looked_up, imported, names = set(), set(), set(code.co_names)
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            looked_up.add(instruction.argval)
        elif instruction.opname == "IMPORT_NAME":
            imported.add(instruction.argval)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            for found, more in zip((looked_up, imported, names), _names_in(constant), strict=True):
                found.update(more)
    return tuple(sorted(looked_up)), tuple(sorted(imported)), tuple(sorted(names))


@functools.lru_cache(maxsize=4096)
def _attributes_of_self(code: types.CodeType) -> tuple[str, ...] | None:
    """Return the attributes that a method reads of ``self``; None if it uses ``self`` otherwise."""
    if not code.co_argcount or "super" in code.co_names:
        return None
    this = code.co_varnames[0]
    if this in code.co_cellvars:
        return None
    found = set()
    is_next = False
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("EXTENDED_ARG", "NOP"):
            continue
        if is_next:
            if instruction.opname not in ("LOAD_ATTR", "LOAD_METHOD"):
                return None
            found.add(instruction.argval)
        names = instruction.argval if isinstance(instruction.argval, tuple) else ()
        if this in names or (instruction.argval == this and "STORE_FAST" in instruction.opname):
            return None
        is_next = instruction.argval == this and instruction.opname.startswith("LOAD_FAST")
    return tuple(sorted(found))


def _slots_of(kind: type) -> list[str]:
    slots = vars(kind).get("__slots__", ())
    names = [slots] if isinstance(slots, str) else list(slots)
    return [
        f"_{kind.__name__.lstrip('_')}{name}" if name[:2] == "__" != name[-2:] else name
        for name in names
        if name not in ("__dict__", "__weakref__")
    ]


def _is_slot(value: Any) -> bool:
    return isinstance(value, types.MemberDescriptorType | types.GetSetDescriptorType)
