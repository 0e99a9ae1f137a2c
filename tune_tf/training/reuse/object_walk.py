"""Walk over objects that writes what a traced program may depend on."""

import dis
import functools
import sys
import types
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

ATOMS = frozenset((str, int, float, bool, type(None), bytes, complex, type(...)))
"""Types whose ``repr`` is written."""

ABSENT = object()
"""Value of an attribute that is missing."""

_LIBRARIES = frozenset(
    (
        *("keras", "tensorflow", "numpy", "scipy", "pandas", "sklearn", "ml_dtypes", "optree"),
        *("absl", "ray", "tune_tf", "builtins", *sys.stdlib_module_names),
    )
)
"""Packages whose classes and functions are compared by name; all others by content."""
_CONTAINERS = (dict, list, tuple, set, frozenset, deque, str, int, float, bytes, complex)
_NOT_IN_CLASSES = frozenset(
    (
        *("__dict__", "__weakref__", "__doc__", "__module__", "__annotations__", "__qualname__"),
        *("__dataclass_fields__", "__dataclass_params__", "__match_args__", "__orig_bases__"),
        *("__parameters__", "__abstractmethods__", "_abc_impl", "__firstlineno__"),
        "__static_attributes__",
    )
)
_MAX_OBJECTS = 200_000

ObjectWriter = Callable[["ObjectWalk", Any], None]


class IncomparableError(Exception):
    """Object with state that cannot be compared; ends the walk."""


class ObjectWalk:
    """Walk over objects that writes tokens; a repeated object is written as its number.

    ``writer_of`` returns the writer of an object's contents; values of ``masked`` pairs
    ``(owner, attribute)`` are left out.
    """

    def __init__(
        self, writer_of: Callable[[Any], ObjectWriter], masked: Iterable[tuple[Any, str]]
    ) -> None:
        self.tokens: list[str] = []
        #: Variables and optimizers, in the order of the walk.
        self.variables: list[Any] = []
        self.optimizers: list[Any] = []
        #: Pairs of an owner's ``id`` and an attribute whose value is left out.
        self.masked = {(id(owner), attribute) for owner, attribute in masked}
        self._writer_of = writer_of
        self._numbers: dict[int, int] = {}
        self._seen: list[Any] = []  # keeps objects alive, so that ids stay unique
        self._modules: set[tuple[str, tuple[str, ...]]] = set()

    def visit(self, value: Any) -> None:
        """Write a value, or its number if it was written before."""
        kind = type(value)
        if kind in ATOMS:
            self.tokens.append(repr(value))
        elif kind is tuple:
            self.write_sequence("tuple", value)
        elif self._is_new(value):
            self._writer_of(value)(self, value)

    def _is_new(self, value: Any) -> bool:
        number = self._numbers.setdefault(id(value), len(self._seen))
        if number < len(self._seen):
            self.tokens.append(f"#{number}")
            return False
        self._seen.append(value)
        if number > _MAX_OBJECTS:
            raise IncomparableError(f"more than {_MAX_OBJECTS} objects are reached")
        return True

    def write_sequence(self, tag: str, values: Iterable[Any]) -> None:
        """Write values in their order."""
        values = list(values)
        self.tokens.append(f"{tag}{len(values)}")
        for value in values:
            self.visit(value)

    def write_mapping(self, mapping: Mapping[Any, Any]) -> None:
        """Write keys and values in their order."""
        self.tokens.append(f"dict{len(mapping)}")
        for key, value in mapping.items():
            self.visit(key)
            self.visit(value)

    def write_set(self, values: Iterable[Any]) -> None:
        """Write a set, whose own order depends on hashes and so on addresses."""
        members = list(values)
        if all(map(_is_plain, members)):
            self.write_sequence("set", sorted(members, key=repr))
        elif len(members) == 1 or all(id(member) in self._numbers for member in members):
            self.write_sequence("set", sorted(members, key=lambda m: self._numbers.get(id(m), 0)))
        else:
            raise IncomparableError("a set holds objects that have no order")

    def write_text(self, value: Any) -> None:
        """Write the ``repr`` of a value."""
        self.tokens.append(f"{type(value).__name__} {value!r}")

    def write_class_of(self, value: Any) -> None:
        """Write the class of an object."""
        name = library_name(type(value))
        if name is None:
            self.visit(type(value))
        else:
            self.tokens.append(name)

    def write_class(self, kind: type) -> None:
        """Write a class: a library's by name, any other by content."""
        name = library_name(kind)
        if name is not None:
            self.tokens.append(name)
            return
        self.tokens.append(f"class {kind.__module__}.{kind.__qualname__}")
        self.write_sequence("bases", kind.__bases__)
        for attribute, value in vars(kind).items():
            is_slot = isinstance(value, types.MemberDescriptorType | types.GetSetDescriptorType)
            if attribute not in _NOT_IN_CLASSES and not is_slot:
                self.tokens.append(attribute)
                self.visit(value)
        self.tokens.append(";")

    def write_function(self, function: types.FunctionType) -> None:
        """Write a function: a library's by name, any other by its code and what it refers to."""
        name = library_name(function)
        if name is not None:
            self.tokens.append(name)
            return
        self.tokens.append(f"function {function.__module__}.{function.__qualname__}")
        self.visit(function.__code__)
        self.visit(function.__defaults__)
        self.visit(function.__kwdefaults__)
        self.write_sequence("cells", map(_cell_contents, function.__closure__ or ()))
        self.write_mapping(vars(function))
        if is_library(function.__module__):
            return  # made by a library function, so its names are the library's
        looked_up, imported, names = _names_in(function.__code__)
        for name in looked_up:
            self.tokens.append(name)
            if name in function.__globals__:
                self._write_global(function.__globals__[name], names)
        for name in imported:
            if name in sys.modules:
                self._write_global(sys.modules[name], names)

    def _write_global(self, value: Any, names: tuple[str, ...]) -> None:
        if isinstance(value, types.ModuleType):
            self.write_module(value, names)
        else:
            self.visit(value)

    def write_module(self, module: types.ModuleType, names: tuple[str, ...] = ()) -> None:
        """Write the attributes of a module that code may refer to by these names."""
        self.tokens.append(f"module {module.__name__}")
        if is_library(module.__name__) or (module.__name__, names) in self._modules:
            return
        self._modules.add((module.__name__, names))
        for name in names:
            if name in vars(module):
                self.tokens.append(name)
                self._write_global(vars(module)[name], names)

    def write_code(self, code: types.CodeType) -> None:
        """Write the instructions and constants of code."""
        self.tokens.append(
            f"code {code.co_code!r} {code.co_names} {code.co_varnames} {code.co_freevars} "
            f"{code.co_cellvars} {code.co_flags} {code.co_argcount} {code.co_kwonlyargcount} "
            f"{code.co_posonlyargcount} {code.co_exceptiontable!r}"
        )
        self.write_sequence("constants", code.co_consts)

    def write_builtin(self, function: types.BuiltinFunctionType) -> None:
        """Write a function or bound method made in C."""
        owner = function.__self__
        self.tokens.append(f"builtin {function.__module__}.{function.__qualname__}")
        if owner is not None and not isinstance(owner, types.ModuleType | type):
            self.visit(owner)

    def write_object(self, value: Any) -> None:
        """Write an object of a Python class, whose state is visible, unlike that of C classes."""
        kind = type(value)
        if _hides_state(kind, value):
            raise IncomparableError(
                f"{kind.__module__}.{kind.__qualname__} has state that cannot be compared"
            )
        self.write_class_of(value)
        if isinstance(value, dict):
            self.write_mapping(value)
        elif isinstance(value, list | tuple | deque):
            self.write_sequence("items", (getattr(value, "maxlen", None), *value))
        elif isinstance(value, set | frozenset):
            self.write_set(value)
        elif isinstance(value, str | int | float | bytes | complex):
            plain: Any = next(base for base in kind.__mro__ if base in ATOMS)
            self.tokens.append(plain.__repr__(value))
        for base in kind.__mro__:
            for name in _slots_of(base):
                self.tokens.append(name)
                self.visit(getattr(value, name, ABSENT))
        for name, attribute in getattr(value, "__dict__", {}).items():
            if not name.startswith("_self_"):  # TensorFlow's tracking
                self.tokens.append(name)
                self.visit(attribute)
        self.tokens.append(";")


def is_library(module: str) -> bool:
    """Return whether a module belongs to a library that is compared by names."""
    return module.partition(".")[0] in _LIBRARIES


_names: dict[Any, str] = {}


def library_name(value: Any) -> str | None:
    """Return the full name of a library's class or function; None if the name does not find it."""
    try:
        return _names[value]
    except (KeyError, TypeError):
        pass
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not (isinstance(module, str) and isinstance(name, str) and is_library(module)):
        return None
    named: Any = sys.modules.get(module)
    for part in name.split("."):
        named = getattr(named, part, None)
    if named is not value:
        return None
    return _names.setdefault(value, f"{module}.{name}")


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
    return type(value) in ATOMS


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
            nested = _names_in(constant)
            looked_up.update(nested[0])
            imported.update(nested[1])
            names.update(nested[2])
    return tuple(sorted(looked_up)), tuple(sorted(imported)), tuple(sorted(names))


def _slots_of(kind: type) -> list[str]:
    slots = vars(kind).get("__slots__", ())
    names = [slots] if isinstance(slots, str) else list(slots)
    return [
        f"_{kind.__name__.lstrip('_')}{name}" if name[:2] == "__" != name[-2:] else name
        for name in names
        if name not in ("__dict__", "__weakref__")
    ]
