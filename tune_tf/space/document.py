"""YAML document as plain data with line numbers for errors."""

import io
import itertools
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.composer import MaxDepthExceededError
from ruamel.yaml.constructor import ConstructorError, SafeConstructor
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError

from tune_tf.errors import ErrorDetail, InvalidSettingsError
from tune_tf.formatting import bytes_text, value_text

_OVERRIDE = "override "
"""Begins the place of an error that an override causes."""


@dataclass(frozen=True)
class YamlDocument:
    """Plain data of a YAML mapping, with the place of each key.

    Args:
        places: 1-based line of each key, or the override that set it, by dotted path.
        errors: Errors found so far: duplicate keys and malformed overrides.
    """

    data: dict[Any, Any]
    places: Mapping[str, int | str] = field(default_factory=dict)
    errors: tuple[ErrorDetail, ...] = ()

    @classmethod
    def read(cls, path: Path) -> "YamlDocument":
        """Load a file.

        Raises:
            InvalidSettingsError: The file is missing or not a YAML mapping.
        """
        try:
            with path.open("rb") as file:
                data = file.read(_MAX_BYTES + 1)
            text = data.decode()
        except UnicodeDecodeError as error:
            text = f"is not text in UTF-8 ({error}): save it in this encoding"
            raise InvalidSettingsError(text, str(path)) from error
        except OSError as error:
            text = f"cannot be read: {error.strerror}; looked for {path.absolute()}"
            raise InvalidSettingsError(text, str(path)) from None
        if len(data) > _MAX_BYTES:
            text = f"is larger than {bytes_text(_MAX_BYTES)}: settings are short; name data by path"
            raise InvalidSettingsError(text, str(path))
        return cls.parse(text, str(path))

    @classmethod
    def parse(cls, text: str, source: str | None = None) -> "YamlDocument":
        """Load a text, the content of a file ``source``; see :meth:`read`."""
        try:
            data, node, lines, errors = _load(text)
        except YAMLError as error:
            raise InvalidSettingsError(_syntax_error(error, text), source) from None
        if node is None or data is None:
            raise InvalidSettingsError("is empty: it must hold a mapping of settings", source)
        if not isinstance(data, dict):
            kind = "a list" if isinstance(data, list) else value_text(repr(data))
            text = f"must be a mapping like `name: value`, not {kind}"
            raise InvalidSettingsError(ErrorDetail("", text, _line(node)), source)
        return cls(data, lines, tuple(errors))

    def overriding(
        self, overrides: Iterable[str], exclusive: Collection[str] = ()
    ) -> "YamlDocument":
        """Return the document with overrides ``dotted.key=value``, whose values are YAML.

        Setting one of the ``exclusive`` keys in a mapping removes the others.
        """
        data, places, errors = _copy_mappings(self.data), dict(self.places), list(self.errors)
        for override in overrides:
            key, equals, text = override.partition("=")
            where = f"{_OVERRIDE}{override}"
            names = key.strip().split(".")
            if not equals or not all(names):
                errors.append(ErrorDetail(where, "must be key=value, like budget.num_samples=8"))
                continue
            try:
                value, _, _, details = _load(text)
            except YAMLError as error:
                errors.append(ErrorDetail(where, f"the value {_syntax_error(error, text).what}"))
                continue
            if details:
                errors.extend(ErrorDetail(where, detail.what) for detail in details)
            elif reason := _assign(data, names, value, exclusive):
                errors.append(ErrorDetail(where, reason))
            else:
                *groups, path = itertools.accumulate(names, "{}.{}".format)
                for below in [each for each in places if each.startswith(f"{path}.")]:
                    del places[below]
                for group in groups:
                    places.setdefault(group, where)
                # The error of a part may be that of the whole, such as of the ends of a range.
                places |= dict.fromkeys([*groups[-1:], path], where)
        return YamlDocument(data, places, tuple(errors))

    def locate(self, errors: Iterable[ErrorDetail]) -> list[ErrorDetail]:
        """Return the errors with their lines, in file order; those of overrides come last."""
        details = [self._locate(detail) for detail in errors]
        return sorted(details, key=lambda detail: detail.line or math.inf)

    def _locate(self, detail: ErrorDetail) -> ErrorDetail:
        if detail.line is not None or detail.where.startswith(_OVERRIDE):
            return detail
        path = detail.where
        while path and path not in self.places:
            path = path.rpartition(".")[0]
        first = next((each for each in self.places.values() if isinstance(each, int)), None)
        place = self.places.get(path, first)
        if not isinstance(place, str):
            return replace(detail, line=place)
        rest = "" if path == detail.where else f"{detail.where}: "
        return ErrorDetail(place, rest + detail.what)


def yaml_text(values: Mapping[str, Any]) -> str:
    """Dump a mapping of plain data as safe YAML, in order, plain mappings and lists on a line."""
    yaml = YAML(typ="safe", pure=True)
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    text = io.StringIO()
    yaml.dump(dict(values), text)
    return text.getvalue()


_MAX_BYTES = 500_000
_MAX_DEPTH = 64
_MAX_VALUES = 50_000
_TOO_DEEP = (
    f"mappings and lists are nested more than {_MAX_DEPTH} deep, or contain themselves through an "
    "alias: write them out"
)
_INVALID = (ValueError, LookupError, TypeError, OverflowError)
"""Errors of ruamel.yaml's constructors, and of its scanner."""


class _PlainConstructor(SafeConstructor):
    """Constructor of plain data that says on which line a value is wrong."""

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        """Construct the value of a node."""
        try:
            value = super().construct_object(node, deep=deep)
            if isinstance(value, int):
                float(value)  # too large for a parameter, and to be printed
        except _INVALID as error:
            is_number = isinstance(error, OverflowError) or "digits" in str(error)
            reason = "is too large a number" if is_number else f"cannot be read ({error})"
            problem = f"{value_text(str(node.value), 40)} {reason}"
            raise ConstructorError(None, None, problem, node.start_mark) from None
        return value


def _load(text: str) -> tuple[Any, Node | None, dict[str, int], list[ErrorDetail]]:
    """Return plain data, their node, the line of each key, and the errors in its structure."""
    loader = YAML(typ="safe", pure=True)
    loader.Constructor = _PlainConstructor
    loader.allow_duplicate_keys = True  # found by the outline, with their lines
    loader.max_depth = _MAX_DEPTH
    outline = _Outline()
    try:
        node = loader.compose(text)
        if node is None:
            return None, None, {}, []
        outline.add(node)
        data = loader.constructor.construct_document(node)
    except MaxDepthExceededError as error:
        raise ConstructorError(None, None, _TOO_DEEP, error.problem_mark) from None
    except _INVALID as error:
        raise YAMLError(value_text(str(error))) from None
    return data, node, outline.lines, outline.errors


def _line(node: Node) -> int:
    return int(node.start_mark.line) + 1


_SYNTAX_REMEDIES = {
    "could not determine a constructor for the tag": "sweep files hold plain data only",
    "found character '\\t'": "indent with spaces, not tabs",
    "mapping values are not allowed here": "put text that holds a colon in quotes",
    "found another document": "remove the line `---`",
    "found undefined alias": "put text that begins with * in quotes",
    "while parsing a flow sequence": "close the list by ]",
    "while parsing a flow mapping": "close the mapping by }",
}
"""What to do, by a part of a YAML error's text."""


def _syntax_error(error: YAMLError, document: str) -> ErrorDetail:
    if isinstance(error, ReaderError):
        line = document.count("\n", 0, error.position) + 1
        return ErrorDetail("", f"holds the character {chr(error.character)!r}: remove it", line)
    if not isinstance(error, MarkedYAMLError):
        return ErrorDetail("", f"is not YAML: {error}")
    text = ", ".join(value_text(part, 200) for part in (error.problem, error.context) if part)
    mark = error.problem_mark or error.context_mark
    text += next((f": {remedy}" for part, remedy in _SYNTAX_REMEDIES.items() if part in text), "")
    return ErrorDetail("", f"is not YAML: {text}", mark.line + 1 if mark else None)


@dataclass
class _Outline:
    """Lines of a document's keys, and the errors in its structure.

    Attributes:
        lines: 1-based line of each key, by dotted path.
        errors: Duplicate keys.
    """

    lines: dict[str, int] = field(default_factory=dict)
    errors: list[ErrorDetail] = field(default_factory=list)
    _num_values: int = 0

    def add(self, node: Node, prefix: str = "", depth: int = 0) -> None:
        """Add a node, each use of an alias on its own; refuse what is absurdly deep or large."""
        self._num_values += 1
        if depth > _MAX_DEPTH:
            raise ConstructorError(None, None, _TOO_DEEP, node.start_mark)
        if self._num_values > _MAX_VALUES:
            text = f"it holds more than {_MAX_VALUES:,} values, each use of an alias counted"
            raise ConstructorError(None, None, text, node.start_mark)
        if isinstance(node, SequenceNode):
            for index, entry in enumerate(node.value):
                self.add(entry, f"{prefix}.{index}", depth + 1)
        elif isinstance(node, MappingNode):
            first_lines: dict[str, int] = {}
            for key, value in node.value:
                name = key.value if isinstance(key, ScalarNode) else str(key.value)
                path = f"{prefix}.{name}" if prefix else name
                line = _line(key)
                if name in first_lines:
                    text = f"is given twice, first on line {first_lines[name]}: keep one of them"
                    self.errors.append(ErrorDetail(path, text, line))
                first_lines.setdefault(name, line)
                self.lines.setdefault(path, line)
                self.add(value, path, depth + 1)


def _copy_mappings(value: Any) -> Any:
    """Copy the mappings in data, each use of a YAML alias on its own."""
    if isinstance(value, dict):
        return {key: _copy_mappings(entry) for key, entry in value.items()}
    return value


def _assign(
    data: dict[Any, Any], names: list[str], value: Any, exclusive: Collection[str]
) -> str | None:
    """Set a value in nested mappings; return an error text, or None on success."""
    *parents, last = names
    group = data
    for depth, name in enumerate(parents, 1):
        below = group.get(name)
        replaceable = below is None or (depth == len(parents) and last in exclusive)
        if not isinstance(below, dict):
            if not replaceable:
                where = ".".join(parents[:depth])
                return f"{where} is {below!r}, which has no keys: set {where} as a whole"
            below = group[name] = {}
        group = below
    if last in exclusive:
        for other in [key for key in group if key in exclusive and key != last]:
            del group[other]
    group[last] = value
    return None
