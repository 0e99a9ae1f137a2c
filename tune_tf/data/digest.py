"""Content digests of values and functions, the same in every process."""

import copyreg
import dis
import functools
import hashlib
import importlib.util
import io
import sys
import types
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

_INSTALLED = {"site-packages", "dist-packages"}


def digest(value: Any, known: Mapping[int, bytes] | None = None) -> bytes | None:
    """Return bytes that are equal for two values exactly if their types and contents are equal.

    The digest of a function covers its code, defaults, closure and the global values it names; that
    of a method also covers its object. Functions and classes of installed packages count by name,
    other objects by their pickled state. ``known`` has digests of large objects by ``id``, to save
    time. Returns None if the value cannot be compared, such as an open file.
    """
    try:
        return _Digester(known or {}).of(value)
    except Exception:  # noqa: BLE001  an object may raise anything; it cannot be compared
        return None


class _Digester:
    def __init__(self, known: Mapping[int, bytes]) -> None:
        self._seen = dict(known)
        self._alive: list[Any] = []  # keeps objects alive, so that no id is reused

    def of(self, value: Any) -> bytes:
        kind = type(value)
        if kind is str:
            return _hashed(b"str", value.encode("utf-8", "surrogatepass"))
        if kind is float:
            return _hashed(b"float", value.hex().encode())
        if kind is int:
            return _hashed(b"int", format(value, "x").encode())
        if kind is bytes:
            return _hashed(b"bytes", value)
        if value is None or kind in (bool, type(...), type(NotImplemented)):
            return _hashed(kind.__name__.encode(), repr(value).encode())
        number = id(value)
        if number not in self._seen:
            self._alive.append(value)
            self._seen[number] = b"cycle %d" % len(self._alive)
            self._seen[number] = self._encode(value, kind)
        return self._seen[number]

    def _encode(self, value: Any, kind: type) -> bytes:
        if kind in (set, frozenset):
            return _hashed(kind.__name__.encode(), *sorted(map(self.of, value)))
        if (kind is np.ndarray or isinstance(value, np.generic)) and not value.dtype.hasobject:
            return _array(value, kind)
        encode_parts = _PARTS.get(kind)
        if encode_parts is not None:
            return self._all(kind.__name__, encode_parts(value))
        if name := _name(value):
            return _hashed(b"named", name.encode())
        if isinstance(value, type):
            return self._class(value)
        if isinstance(value, types.FunctionType):
            return self._function(value)
        if isinstance(value, types.ModuleType):
            return _module(value.__name__)
        if hasattr(value, "__wrapped__"):  # such as a functools.lru_cache wrapper
            return self._all(f"around {kind.__qualname__}", [value.__wrapped__])
        return self._object(value, kind)

    def _all(self, kind: str, parts: Iterable[Any]) -> bytes:
        return _hashed(kind.encode(), *map(self.of, parts))

    def _object(self, value: Any, kind: type) -> bytes:
        reduce = copyreg.dispatch_table.get(kind)
        reduced = value.__reduce_ex__(4) if reduce is None else reduce(value)
        if isinstance(reduced, str):
            owner = getattr(value, "__self__", None)
            owner = None if isinstance(owner, types.ModuleType) else owner
            return self._all("global", [kind, getattr(value, "__module__", ""), reduced, owner])
        factory, arguments, state, items, pairs = (*reduced, None, None, None)[:5]
        if factory is dict and len(arguments) == 1 and type(arguments[0]) is dict:
            return self.of(arguments[0])  # counts as a plain dict, whatever its class
        parts = [factory, arguments, state, list(items or ()), list(pairs or ())]
        return self._all("object", parts)

    def _class(self, value: type) -> bytes:
        attributes = {
            name: it
            for name, it in vars(value).items()
            if isinstance(it, types.FunctionType) or not name.startswith(("__", "_abc_"))
        }
        return self._all("class", [value.__qualname__, value.__bases__, attributes])

    def _function(self, value: types.FunctionType) -> bytes:
        parts = [
            value.__code__,
            value.__defaults__,
            value.__kwdefaults__,
            value.__closure__,
            {name: it for name, it in vars(value).items() if name != "__wrapped__"},
            {} if _is_installed(value.__module__) else dict(sorted(_globals_of(value))),
        ]
        return self._all("function", parts)


def _hashed(*parts: bytes) -> bytes:
    hasher = hashlib.blake2b(digest_size=16)
    for part in parts:
        hasher.update(len(part).to_bytes(8, "little"))
        hasher.update(part)
    return hasher.digest()


def _array(value: Any, kind: type) -> bytes:
    hasher = hashlib.blake2b(f"{kind} {value.dtype!r} {value.shape}".encode(), digest_size=16)
    hasher.update(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
    return hasher.digest()


def _cell(value: types.CellType) -> list[Any]:
    try:
        return [value.cell_contents]
    except ValueError:
        return []


def _code(value: types.CodeType) -> list[Any]:
    return [
        value.co_code,
        value.co_consts,
        value.co_names,
        value.co_varnames,
        value.co_freevars,
        value.co_cellvars,
        value.co_flags,
        (value.co_argcount, value.co_posonlyargcount, value.co_kwonlyargcount),
        value.co_exceptiontable,
    ]


def _file(value: io.BytesIO) -> list[Any]:
    """Return the contents of a file; Keras pickles a model as a zip archive."""
    content = value.getvalue()
    if not zipfile.is_zipfile(io.BytesIO(content)):
        return [content, value.tell()]
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        names = [name for name in archive.namelist() if name != "metadata.json"]  # has a timestamp
        return [{name: archive.read(name) for name in names}, value.tell()]


_PARTS: dict[type, Any] = {
    list: list,
    tuple: tuple,
    dict: lambda it: (part for item in it.items() for part in item),
    io.BytesIO: _file,
    complex: lambda it: (it.real, it.imag),
    slice: lambda it: (it.start, it.stop, it.step),
    types.CodeType: _code,
    types.CellType: _cell,
    types.MethodType: lambda it: (it.__func__, it.__self__),
    types.MemberDescriptorType: lambda it: (it.__name__,),
    types.GetSetDescriptorType: lambda it: (it.__name__,),
    types.MappingProxyType: lambda it: (dict(it),),
    property: lambda it: (it.fget, it.fset, it.fdel),
    staticmethod: lambda it: (it.__func__,),
    classmethod: lambda it: (it.__func__,),
    functools.cached_property: lambda it: (it.func,),
}


def _globals_of(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the global values that a function uses, with their dotted paths."""
    for code in _codes(function.__code__):
        steps = list(dis.get_instructions(code))
        for at, step in enumerate(steps):
            if step.opname == "IMPORT_NAME":
                package = function.__globals__.get("__package__")
                dots = "." * steps[at - 2].argval
                name = importlib.util.resolve_name(dots + step.argval, package)
                if not _is_installed(name):
                    yield f"import {name}", _module(name)
            if step.opname not in ("LOAD_GLOBAL", "LOAD_NAME"):
                continue
            path, value = step.argval, function.__globals__.get(step.argval, ...)
            for attribute in steps[at + 1 :]:
                inside = isinstance(value, types.ModuleType)
                if not inside or attribute.opname not in ("LOAD_ATTR", "LOAD_METHOD"):
                    break
                if _is_installed(value.__name__):
                    break
                path = f"{path}.{attribute.argval}"
                value = getattr(value, attribute.argval, ...)
            yield path, value


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _module(name: str) -> bytes:
    if _is_installed(name):
        return _hashed(b"module", name.encode())
    spec = getattr(sys.modules.get(name), "__spec__", None) or importlib.util.find_spec(name)
    if spec is None or not spec.has_location or spec.origin is None:
        raise LookupError(name)
    return _hashed(b"module", name.encode(), Path(spec.origin).read_bytes())


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
    if module is None or module == "__main__":
        return False
    imported = sys.modules.get(top) or sys.modules.get(module)
    file = getattr(imported, "__file__", None)
    if imported is None:
        spec = importlib.util.find_spec(top)
        file = spec.origin if spec is not None else None
    return file is not None and not _INSTALLED.isdisjoint(Path(file).parts)
