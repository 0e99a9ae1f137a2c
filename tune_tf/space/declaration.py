"""Parser and writer of search spaces, as in the ``space`` section of a sweep file.

``{loguniform: [1.0e-4, 1.0e-1]}`` declares a parameter; the key is its kind. A value without a kind
is a constant, a mapping without a kind is a group.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from numbers import Number
from typing import Any

from tune_tf.errors import ErrorDetail, InvalidSettingsError, did_you_mean, one_of
from tune_tf.space.parameter import Choice, Constant, Float, Int, Parameter
from tune_tf.space.paths import SEPARATOR, dotted, join, name_error, nest
from tune_tf.validation import short_repr


@dataclass(frozen=True)
class _Range:
    """Kind of parameter that a list of numbers declares."""

    make: type[Float] | type[Int]
    about: str
    form: str
    example: list[float]


_STEPPED = "[low, high] or [low, high, step]"
_RANGES = {
    "uniform": _Range(Float, "A number of the range", _STEPPED, [0.0, 0.5]),
    "loguniform": _Range(Float, "A number with a uniform logarithm", "[low, high]", [1e-4, 1e-1]),
    "int": _Range(Int, "An integer of the range", _STEPPED, [16, 128, 16]),
    "logint": _Range(Int, "An integer with a uniform logarithm", "[low, high]", [16, 1024]),
}

WHEN = "when"

DECLARATIONS: dict[str, dict[str, Any]] = {
    **{
        kind: {
            "description": f"{it.about}: {it.form}, both ends included.",
            "type": "array",
            "items": {"type": "number"},
            "minItems": 2,
            "maxItems": 3,
            "examples": [it.example],
        }
        for kind, it in _RANGES.items()
    },
    "choice": {
        "description": "One of the values.",
        "type": "array",
        "minItems": 1,
        "examples": [["adam", "sgd"]],
    },
    "constant": {
        "description": "The value itself, such as a list, that could be taken for a parameter.",
        "examples": [[3, 3]],
    },
    WHEN: {
        "description": "Beside a kind: values of other parameters with which this one exists.",
        "type": "object",
        "examples": [{"optimizer": "sgd"}],
    },
}
"""JSON schema of each key of a parameter."""

DECLARATION_KINDS = tuple(key for key in DECLARATIONS if key != WHEN)
"""Keys that declare a parameter."""

_FOREIGN_WORDS = {
    *("min", "max", "minval", "maxval", "min_value", "max_value", "low", "high", "lower", "upper"),
    *("value", "values", "val", "vals", "options", "categories", "choices", "list", "grid_search"),
    "distribution",
}


def is_ambiguous(value: object) -> bool:
    """Return whether a value may be meant as a parameter, not as a constant.

    Such are mappings with words such as ``min`` that hold no mappings, which would be groups, and
    all values but numbers, texts, booleans, dates and None.
    """
    if isinstance(value, Mapping):
        names = [str(name).lower() for name in value]
        is_group = any(isinstance(entry, Mapping) for entry in value.values())
        return not is_group and not _FOREIGN_WORDS.isdisjoint(names)
    return not isinstance(value, str | Number | date | None)


@dataclass
class Declarations:
    """Parameters that a mapping declares, and the errors of invalid declarations.

    Attributes:
        parameters: Parameter by path.
        errors: Errors by dotted path.
        invalid: Paths of the invalid parameters.
    """

    parameters: dict[str, Parameter] = field(default_factory=dict)
    errors: list[ErrorDetail] = field(default_factory=list)
    invalid: set[str] = field(default_factory=set)

    @classmethod
    def read(cls, mapping: object) -> "Declarations":
        """Read the ``space`` section of a sweep file, or parameters by name."""
        declarations = cls()
        if isinstance(mapping, Mapping):
            declarations._add_group(mapping, "")
        else:
            example = "{learning_rate: {loguniform: [1e-4, 1e-1]}}"
            text = f"a search space must be a mapping like {example}, not {short_repr(mapping)}"
            declarations.errors.append(ErrorDetail("", text))
        return declarations

    def _add_group(self, group: Mapping[Any, Any], prefix: str) -> None:
        for name, entry in group.items():
            path = join(prefix, str(name))
            # A path of several names is the same as groups, so a flat mapping works too.
            names = name.split(SEPARATOR) if isinstance(name, str) else [name]
            errors = [text for part in names if (text := name_error(part))]
            errors += [
                f"a group cannot hold a parameter named {part!r}, which is a kind of parameter: "
                "rename it"
                for part in (names if prefix else names[1:])
                if part in DECLARATIONS
            ]
            if errors:
                self.errors.extend(ErrorDetail(dotted(path), text) for text in errors)
            else:
                self._add_entry(path, entry)

    def _add_entry(self, path: str, entry: Any) -> None:
        try:
            parameter = _parameter(entry)
        except InvalidSettingsError as error:
            self.errors.extend(
                ErrorDetail(dotted(path), f"{detail.where} {detail.what}".strip())
                for detail in error.details
            )
            self.invalid.add(path)
            return
        if parameter is None:
            self._add_group(entry, path)
        elif path in self.parameters:
            self.errors.append(ErrorDetail(dotted(path), "is given twice: leave one of them out"))
        else:
            self.parameters[path] = parameter


def _parameter(declared: Any) -> Parameter | None:
    """Return the parameter that an entry declares; None for a group.

    Raises:
        InvalidSettingsError: It declares none, or an invalid one.
    """
    if isinstance(declared, Parameter):
        return declared
    is_mapping = isinstance(declared, Mapping)
    if is_mapping and any(kind in declared for kind in DECLARATION_KINDS):
        return _declared_parameter(declared)
    if is_ambiguous(declared):
        own = "; SearchSpace.from_ray takes Ray's" if type(declared).__module__[:3] == "ray" else ""
        raise InvalidSettingsError(
            f"is {short_repr(declared)}, which may be a range, a choice or a constant: write "
            "{uniform: [low, high]} or [low, high, step], {loguniform: [low, high]}, "
            "{int: [low, high]}, "
            f"{{choice: [a, b]}}, or {{constant: ...}} for the value itself{own}"
        )
    if not is_mapping:
        return Constant(declared)
    if not declared or WHEN in declared:
        raise InvalidSettingsError(
            f"has no kind of parameter, {one_of(DECLARATION_KINDS)}, and is no group of "
            "parameters, which holds at least one and has no `when`"
        )
    return None


def _declared_parameter(declared: Mapping[Any, Any]) -> Parameter:
    kinds = [kind for kind in DECLARATION_KINDS if kind in declared]
    errors = [
        f"unknown key {name!r} beside {kinds[0]!r}{did_you_mean(name, [WHEN])}: "
        "only `when` is allowed there"
        for name in declared
        if name not in DECLARATIONS
    ]
    if len(kinds) > 1:
        errors.append(f"is declared as {' and as '.join(kinds)}: keep one")
    if errors:
        raise InvalidSettingsError(errors)
    (kind,) = kinds
    value, when = declared[kind], declared.get(WHEN)
    if kind not in _RANGES:
        return (Choice if kind == "choice" else Constant)(value, when=when)
    it = _RANGES[kind]
    if not isinstance(value, list | tuple) or len(value) not in (2, 3):
        raise InvalidSettingsError(f"{kind} must be {it.form}, not {short_repr(value)}")
    numbers = dict(zip(("low", "high", "step"), value, strict=False))
    return it.make(**numbers, log=kind.startswith("log"), when=when)


def space_section(parameters: Mapping[str, Parameter]) -> dict[str, Any]:
    """Return the ``space`` section of a sweep file for parameters by path."""
    return nest({path: declaration_of(parameter) for path, parameter in parameters.items()})


def declaration_of(parameter: Parameter) -> Any:
    """Return what declares a parameter in a sweep file."""
    if isinstance(parameter, Constant):
        value = parameter.value
        if parameter.when is None and not (isinstance(value, Mapping) or is_ambiguous(value)):
            return value
    when = {} if parameter.when is None else {WHEN: parameter.condition.to_dict()}
    return {**_kind_and_value(parameter), **when}


def _kind_and_value(parameter: Parameter) -> dict[str, Any]:
    match parameter:
        case Choice(options):
            return {"choice": list(options)}
        case Constant(value):
            return {"constant": value}
        case Float(low, high, log, step):
            ends = [low, high] if step is None else [low, high, step]
            return {"loguniform" if log else "uniform": ends}
        case Int(low, high, log, step):
            return {"logint" if log else "int": [low, high] if step == 1 else [low, high, step]}
    raise TypeError(f"{type(parameter).__name__} cannot be written to a file")
