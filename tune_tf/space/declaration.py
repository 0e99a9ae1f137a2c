"""Parser and writer of the ``space`` section of a sweep file.

``{loguniform: [1.0e-4, 1.0e-1]}`` declares a parameter; the key is its kind. A value without a kind
is a constant, a mapping without a kind is a group.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tune_tf.errors import ErrorDetail, InvalidSettingsError, did_you_mean, one_of
from tune_tf.space.condition import ALWAYS, Condition
from tune_tf.space.document import inline_yaml
from tune_tf.space.other_tools import intended_parameter, is_ambiguous
from tune_tf.space.parameter import Choice, Constant, Float, Int, Parameter
from tune_tf.space.paths import SEPARATOR, dotted, join, name_error, nest

_RANGE_FORMS = {
    "uniform": "[low, high]",
    "quniform": "[low, high, step]",
    "loguniform": "[low, high]",
    "int": "[low, high] or [low, high, step]",
    "logint": "[low, high]",
}

_ABOUT_RANGES = {
    "uniform": ("A number of the range", [0.0, 0.5]),
    "quniform": ("A number of the range, in steps from its low end", [0.0, 0.5, 0.1]),
    "loguniform": ("A number of the range, equally likely on a logarithmic scale", [1e-4, 1e-1]),
    "int": ("An integer of the range", [16, 128, 16]),
    "logint": ("An integer of the range, equally likely on a logarithmic scale", [16, 1024]),
}

WHEN = "when"

DECLARATIONS: dict[str, dict[str, Any]] = {
    **{
        kind: {
            "description": f"{about}: {_RANGE_FORMS[kind]}, both ends included.",
            "type": "array",
            "items": {"type": "number"},
            "minItems": 2,
            "examples": [example],
        }
        for kind, (about, example) in _ABOUT_RANGES.items()
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


@dataclass
class Declarations:
    """Parameters that a mapping declares, and the errors of invalid declarations.

    Attributes:
        errors: Errors by dotted path.
        invalid: Conditions of the invalid parameters, by path.
    """

    parameters: dict[str, Parameter] = field(default_factory=dict)
    errors: list[ErrorDetail] = field(default_factory=list)
    invalid: dict[str, Condition] = field(default_factory=dict)

    @classmethod
    def read(cls, mapping: object) -> "Declarations":
        """Read the ``space`` section of a sweep file."""
        declarations = cls()
        if isinstance(mapping, Mapping):
            declarations._add_group(mapping, "")
            return declarations
        text = "a search space must be a mapping like {learning_rate: {loguniform: [1e-4, 1e-1]}}"
        named = _by_name(mapping)
        text += f", not {'a list of parameters with names' if named else repr(mapping)}"
        declarations.errors.append(ErrorDetail("", text))
        declarations._add_group(named, "")
        return declarations

    def _add_group(self, group: Mapping[Any, Any], prefix: str) -> None:
        for name, declared in group.items():
            if text := name_error(name):
                self.errors.append(ErrorDetail(dotted(prefix), text))
                continue
            self._add_entry(join(prefix, name), declared)

    def _add_entry(self, path: str, declared: object) -> None:
        name = path.rpartition(SEPARATOR)[2]
        if text := _in_other_words(name, declared):
            when = declared if isinstance(declared, Mapping) else {}
            self._add_invalid(path, when, ErrorDetail("", text))
        elif not isinstance(declared, Mapping):
            self.parameters[path] = Constant(declared)
        elif any(kind in declared for kind in DECLARATION_KINDS):
            try:
                self.parameters[path] = _parameter(declared)
            except InvalidSettingsError as error:
                self._add_invalid(path, declared, *error.details)
        elif text := _group_error(declared):
            self._add_invalid(path, declared, ErrorDetail("", text))
        else:
            self._add_group(declared, path)

    def _add_invalid(self, path: str, declared: Mapping[Any, Any], *errors: ErrorDetail) -> None:
        self.errors.extend(ErrorDetail(dotted(path), detail.what) for detail in errors)
        try:
            self.invalid[path] = Condition(declared.get(WHEN) or {})
        except InvalidSettingsError:
            self.invalid[path] = ALWAYS  # the error is already reported


def _by_name(declared: object) -> dict[str, Any]:
    """Return the parameters of a list by their names, as Katib has them; nothing for others."""
    if not isinstance(declared, list) or not all(isinstance(each, dict) for each in declared):
        return {}
    return {
        str(each["name"]): {key: value for key, value in each.items() if key != "name"}
        for each in declared
        if "name" in each
    }


def _in_other_words(name: str, declared: object) -> str | None:
    """Return what to write for a list, or for a declaration of another tool; None for others."""
    if not is_ambiguous(declared):
        return None
    if isinstance(declared, Mapping):
        what = f"has {', '.join(map(str, declared))}, which declare no parameter here"
    elif isinstance(declared, str):
        what = f"is the text {declared!r}"
    else:
        what = "is a list, which may be a range, a choice or a constant"
    meant = intended_parameter(declared)
    if meant is None:
        return f"{what}: use {one_of(DECLARATION_KINDS)}"
    written = [inline_yaml({name: declaration_of(meant)})[1:-1]]
    if isinstance(declared, list) and not isinstance(meant, Choice):
        written.append(inline_yaml({"choice": declared}))
    itself = inline_yaml({"constant": declared})
    return f"{what}: write `{'` or `'.join(written)}`; `{itself}` is the value itself"


def _group_error(declared: Mapping[Any, Any]) -> str | None:
    """Return what is wrong with a mapping without a kind, which is to be a group, or None."""
    names = [name for name in declared if name != WHEN]
    if not names and WHEN not in declared:
        return f"{{}} declares nothing: use {one_of(DECLARATION_KINDS)}"
    if len(names) == 1 and isinstance(declared[names[0]], list | tuple):
        near = did_you_mean(names[0], DECLARATION_KINDS)
        if near:
            return (
                f"{names[0]!r} is not a kind of parameter{near} "
                f"The kinds are {', '.join(DECLARATION_KINDS)}; for a "
                f"parameter named {names[0]!r} write {{{names[0]}: {{constant: [...]}}}}"
            )
    if WHEN in declared:
        return (
            "`when` belongs next to the kind of a parameter, "
            f"{one_of(DECLARATION_KINDS)}: a group has none, so put it on each of its parameters"
        )
    return None


def _parameter(declared: Mapping[Any, Any]) -> Parameter:
    kinds = [kind for kind in DECLARATION_KINDS if kind in declared]
    errors = [
        f"unknown key {name!r} beside {kinds[0]!r}{did_you_mean(name, [WHEN])}: "
        "only `when` is allowed there"
        for name in declared
        if name not in DECLARATION_KINDS and name != WHEN
    ]
    if len(kinds) > 1:
        errors.append(f"is declared as {' and as '.join(kinds)}: keep one")
    if errors:
        raise InvalidSettingsError(errors)
    (kind,) = kinds
    value, when = declared[kind], declared.get(WHEN)
    match kind, value:
        case "uniform", [low, high]:
            return Float(low, high, when=when)
        case "quniform", [low, high, step]:
            return Float(low, high, step=step, when=when)
        case "loguniform", [low, high]:
            return Float(low, high, log=True, when=when)
        case "int", [low, high, *steps] if len(steps) <= 1:
            return Int(low, high, step=steps[0] if steps else 1, when=when)
        case "logint", [low, high]:
            return Int(low, high, log=True, when=when)
        case "choice", options:
            return Choice(options, when=when)
        case "constant", constant:
            return Constant(constant, when=when)
    raise InvalidSettingsError(f"{kind} must be {_RANGE_FORMS[kind]}, not {value!r}")


def space_section(parameters: Mapping[str, Parameter]) -> dict[str, Any]:
    """Return the ``space`` section of a sweep file for parameters by path."""
    return nest({path: declaration_of(parameter) for path, parameter in parameters.items()})


def declaration_of(parameter: Parameter) -> Any:
    """Return what declares a parameter in a sweep file."""
    value = _kind_and_value(parameter)
    if parameter.when is not None:
        return {**value, WHEN: parameter.condition.to_dict()}
    if isinstance(parameter, Constant) and not (
        isinstance(parameter.value, Mapping) or is_ambiguous(parameter.value)
    ):
        return parameter.value
    return value


def _kind_and_value(parameter: Parameter) -> dict[str, Any]:
    match parameter:
        case Float(low, high, log=True):
            return {"loguniform": [low, high]}
        case Float(low, high, step=None):
            return {"uniform": [low, high]}
        case Float(low, high, step=step):
            return {"quniform": [low, high, step]}
        case Int(low, high, log=True):
            return {"logint": [low, high]}
        case Int(low, high, step=1):
            return {"int": [low, high]}
        case Int(low, high, step=step):
            return {"int": [low, high, step]}
        case Choice(options):
            return {"choice": list(options)}
        case Constant(value):
            return {"constant": value}
    raise TypeError(f"{type(parameter).__name__} cannot be written to a file")
