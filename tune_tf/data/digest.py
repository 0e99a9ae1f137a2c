"""Content digests of values and functions, the same in every process."""

import copyreg
import functools
import hashlib
import sys
import types
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

_PLAIN = (str, bytes, int, float, bool, complex, type(None), type(...))
_INSTALLED = {"site-packages", "dist-packages"}


def digest(value: Any) -> bytes | None:
    """Return bytes that are equal for two values exactly if their types and contents are equal.

    The digest of a function covers its code, defaults, closure and the global values it names; that
    of a method also covers its object. Functions and classes of installed packages count by name,
    other objects by their pickled state. Returns None if the value cannot be compared, such as an
    open file.
    """
    try:
        return _Digester().of(value)
    except Exception:  # noqa: BLE001  an object may raise anything; it cannot be compared
        return None


class _Digester:
    def __init__(self) -> None:
        self._seen: dict[int, bytes] = {}
        self._alive: list[Any] = []  # keeps objects alive, so that no id is reused

    def of(self, value: Any) -> bytes:
        kind = type(value)
        if kind in _PLAIN:
            return _hashed(kind.__name__, repr(value).encode())
        number = id(value)
        if number not in self._seen:
            self._alive.append(value)
            self._seen[number] = b"cycle %d" % len(self._alive)
            self._seen[number] = self._encode(value, kind)
        return self._seen[number]

    def _encode(self, value: Any, kind: type) -> bytes:
        if kind in (set, frozenset):
            return _hashed(kind.__name__, *sorted(map(self.of, value)))
        if (kind is np.ndarray or isinstance(value, np.generic)) and not value.dtype.hasobject:
            content = np.ascontiguousarray(value).reshape(-1).view(np.uint8).data
            return _hashed(f"{kind} {value.dtype!r} {value.shape}", content)
        if kind in _PARTS:
            return self._all(kind.__name__, _PARTS[kind](value))
        if name := _name(value):
            return _hashed("named", name.encode())
        if isinstance(value, type):
            return self._all("class", [value.__qualname__, value.__bases__, _attributes(value)])
        if hasattr(value, "__wrapped__") and not isinstance(value, types.FunctionType):
            return self._all(f"around {kind.__qualname__}", [value.__wrapped__])
        return self._object(value, kind)

    def _all(self, kind: str, parts: Iterable[Any]) -> bytes:
        return _hashed(kind, *map(self.of, parts))

    def _object(self, value: Any, kind: type) -> bytes:
        reduce = copyreg.dispatch_table.get(kind)
        reduced = value.__reduce_ex__(4) if reduce is None else reduce(value)
        if isinstance(reduced, str):
            return self._all("global", [kind, getattr(value, "__module__", ""), reduced])
        factory, arguments, state, items, pairs = (*reduced, None, None, None)[:5]
        if factory is dict and len(arguments) == 1 and type(arguments[0]) is dict:
            return self.of(arguments[0])  # counts as a plain dict, whatever its class
        return self._all(
            "object", [factory, arguments, state, list(items or ()), list(pairs or ())]
        )


def _hashed(kind: str, *parts: Any) -> bytes:
    hasher = hashlib.blake2b(kind.encode(), digest_size=16)
    for part in parts:
        hasher.update(len(part).to_bytes(8, "little"))
        hasher.update(part)
    return hasher.digest()


def _attributes(kind: type) -> dict[str, Any]:
    return {
        name: value
        for name, value in vars(kind).items()
        if isinstance(value, types.FunctionType) or not name.startswith(("__", "_abc_"))
    }


def _function(value: types.FunctionType) -> list[Any]:
    if name := _name(value):
        return [name]
    cells = [_contents(cell) for cell in value.__closure__ or ()]
    others = {name: it for name, it in vars(value).items() if name != "__wrapped__"}
    named = [] if _is_installed(value.__module__) else [*_named_in(value.__code__, value)]
    return [value.__code__, value.__defaults__, value.__kwdefaults__, cells, others, named]


def _contents(cell: types.CellType) -> list[Any]:
    try:
        return [cell.cell_contents]
    except ValueError:  # it is empty
        return []


def _named_in(code: types.CodeType, function: types.FunctionType) -> Iterator[Any]:
    """Yield the global values and the parts of the user's modules that a function names."""
    for name in code.co_names:
        value = function.__globals__.get(name, sys.modules.get(name))
        yield value
        if isinstance(value, types.ModuleType) and not _is_installed(value.__name__):
            yield {part: getattr(value, part) for part in code.co_names if hasattr(value, part)}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _named_in(constant, function)


def _module(value: types.ModuleType) -> list[Any]:
    content = b"" if _is_installed(value.__name__) else Path(str(value.__file__)).read_bytes()
    return [value.__name__, content]


_PARTS: dict[type, Any] = {
    list: list,
    tuple: tuple,
    dict: lambda it: (part for item in it.items() for part in item),
    types.FunctionType: _function,
    types.MethodType: lambda it: (it.__func__, it.__self__),
    types.ModuleType: _module,
    types.CodeType: lambda it: (
        *(it.co_code, it.co_consts, it.co_names, it.co_varnames, it.co_freevars, it.co_flags),
        *(it.co_argcount, it.co_posonlyargcount, it.co_kwonlyargcount, it.co_exceptiontable),
    ),
    types.MemberDescriptorType: lambda it: (it.__name__,),
    property: lambda it: (it.fget, it.fset, it.fdel),
    staticmethod: lambda it: (it.__func__,),
    classmethod: lambda it: (it.__func__,),
    functools.cached_property: lambda it: (it.func,),
}


def _name(value: Any) -> str | None:
    """Return the dotted name of a class or function of an installed package; None for any other."""
    module, name = (getattr(value, each, None) for each in ("__module__", "__qualname__"))
    if not (isinstance(module, str) and isinstance(name, str) and _is_installed(module)):
        return None
    named: Any = sys.modules.get(module)
    for part in name.split("."):
        named = getattr(named, part, None)
    return f"{module}.{name}" if named is value else None


@functools.cache
def _is_installed(module: str | None) -> bool:
    """Return whether a module belongs to Python or an installed package."""
    top = str(module).partition(".")[0]
    if top in sys.stdlib_module_names or top in ("builtins", __name__.partition(".")[0]):
        return True
    file = getattr(sys.modules.get(top), "__file__", None)
    return top != "__main__" and file is not None and not _INSTALLED.isdisjoint(Path(file).parts)
