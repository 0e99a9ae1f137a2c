"""Content digests of values and functions, the same in every process."""

import functools
import hashlib
import pickle
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

_INSTALLED = {"site-packages", "dist-packages"}


def digest(value: Any) -> bytes | None:
    """Return bytes that are equal for two values only if their types and contents are equal.

    The digest is that of the pickle of a value. That of a function covers its code, defaults,
    closure and the global values it names; that of a method also covers its object. Functions and
    classes of installed packages count by name. Returns None if the value cannot be compared, such
    as an open file or an object that holds itself.
    """
    hasher = _Hasher()
    try:
        hasher.dump(value)
    except Exception:  # noqa: BLE001  an object may raise anything; it cannot be compared
        return None
    return hasher.hash.digest()


class _Hasher(pickle.Pickler):
    """Pickler into a hash, of what pickle stores by name, or in any order, by its content."""

    def __init__(self) -> None:
        super().__init__(self, protocol=5)
        self.fast = True  # equal strings count as such, whether or not they are one object
        self.hash = hashlib.blake2b(digest_size=16)
        self._seen: dict[int, tuple[int, Any]] = {}

    def write(self, data: Any) -> None:
        """Add a part of the pickle."""
        self.hash.update(data)

    def persistent_id(self, value: Any) -> Any:
        """Return what is pickled in the place of a value; None for the value itself."""
        kind = type(value)
        if kind in (set, frozenset):
            return kind.__name__, b"".join(sorted(map(digest, value)))  # type: ignore[type-var, arg-type]
        if kind is np.ndarray and not value.dtype.hasobject:  # in any memory, read-only or not
            content = np.ascontiguousarray(value).reshape(-1).view(np.uint8).data.toreadonly()
            return repr(value.dtype), value.shape, pickle.PickleBuffer(content)
        parts = _class if isinstance(value, type) else _PARTS.get(kind)
        if parts is None or _has_installed_name(value):
            return None
        if id(value) in self._seen:
            return "again", self._seen[id(value)][0]
        self._seen[id(value)] = len(self._seen), value
        return kind.__name__, parts(value)


def _class(value: type) -> list[Any]:
    attributes = {
        name: each
        for name, each in vars(value).items()
        if isinstance(each, types.FunctionType) or not name.startswith(("__", "_abc_"))
    }
    return [value.__qualname__, value.__bases__, attributes]


def _function(value: types.FunctionType) -> list[Any]:
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
    types.FunctionType: _function,
    types.ModuleType: _module,
    types.CodeType: lambda it: (
        *(it.co_code, it.co_consts, it.co_names, it.co_varnames, it.co_freevars, it.co_flags),
        *(it.co_argcount, it.co_posonlyargcount, it.co_kwonlyargcount, it.co_exceptiontable),
    ),
    types.MemberDescriptorType: lambda it: [it.__name__],
    property: lambda it: [it.fget, it.fset, it.fdel],
    staticmethod: lambda it: [it.__func__],
    classmethod: lambda it: [it.__func__],
    functools.cached_property: lambda it: [it.func],
    type(functools.lru_cache(len)): lambda it: [it.__wrapped__],
}


def _has_installed_name(value: Any) -> bool:
    """Return whether a class or function is found by its name in an installed package."""
    module, name = (getattr(value, each, None) for each in ("__module__", "__qualname__"))
    if not (isinstance(module, str) and isinstance(name, str) and _is_installed(module)):
        return False
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found is value


@functools.cache
def _is_installed(module: str | None) -> bool:
    """Return whether a module belongs to Python or an installed package."""
    top = str(module).partition(".")[0]
    if top in sys.stdlib_module_names or top in ("builtins", __name__.partition(".")[0]):
        return True
    file = getattr(sys.modules.get(top), "__file__", None)
    return top != "__main__" and file is not None and not _INSTALLED.isdisjoint(Path(file).parts)
