"""Parameters in the words of other tools, for errors that say what to write here."""

import ast
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any, Final

from tune_tf.errors import InvalidSettingsError
from tune_tf.space.parameter import Choice, Constant, Float, Int, Parameter, is_number

_LOW: Final = ("min", "minval", "min_value", "low", "lower", "start", "from")
_HIGH: Final = ("max", "maxval", "max_value", "high", "upper", "end", "stop", "to")
_OPTIONS: Final = ("values", "vals", "options", "categories", "choices", "list", "grid_search")
_VALUE: Final = ("value", "val")
_DETAILS: Final = (
    *("distribution", "type", "parametertype", "sampling", "scale", "log", "base", "step", "q"),
    *("default", "name", "count", "ordered", "probabilities", "mu", "sigma", "parent_name"),
    *("parent_values", "feasiblespace"),
)
_WORDS: Final = frozenset((*_LOW, *_HIGH, *_OPTIONS, *_VALUE, *_DETAILS))
_DECISIVE: Final = frozenset((*_LOW, *_HIGH, *_OPTIONS, *_VALUE, "distribution", "feasiblespace"))

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_RANGE = re.compile(
    rf"[\[(]\s*({_NUMBER})\s*,\s*({_NUMBER})\s*[\])]"
    rf"|({_NUMBER})\s*(?:\.{{2,3}}|\s-\s|\sto\s|~)\s*({_NUMBER})"
)
_CALL = re.compile(
    r"(?:\w+\.)*(l?q?uniform|q?log_?uniform|q?log_?randint|q?randint|choice|grid_search|suggest_\w+"
    r"|Float|Int|Choice|Boolean|Fixed|sample_from|normal|randn)\((.*)\)",
    re.DOTALL,
)
_LOG_FROM: Final = 100
"""Ratio of the ends of a range of positive floats from which a logarithmic scale is proposed."""


def is_ambiguous(value: object) -> bool:
    """Return whether a value is more likely a declaration of another tool than a constant.

    Such are lists, sets, ranges, functions, distributions, texts such as ``1e-4..1e-1`` and
    ``choice([1, 2])``, and mappings with other tools' words. A group of parameters with such names
    differs from the latter by the mappings that declare them.
    """
    if isinstance(value, str):
        return bool(_RANGE.fullmatch(value.strip()) or _CALL.fullmatch(value.strip()))
    if isinstance(value, Mapping):
        entries = {str(name).lower(): entry for name, entry in value.items() if name != "when"}
        entries_are_plain = not any(
            isinstance(entry, Mapping) and name != "feasiblespace"
            for name, entry in entries.items()
        )
        names = entries.keys()
        return entries_are_plain and bool(names & _DECISIVE) and names <= _WORDS
    if isinstance(value, list | tuple | set | frozenset | range) or callable(value):
        return True
    package = type(value).__module__.partition(".")[0]
    return package in ("ray", "optuna", "scipy") or (
        package == "numpy" and getattr(value, "ndim", 0) > 0
    )


def python_source(parameter: Parameter) -> str:
    """Return the Python expression of a parameter, without arguments that have their default."""
    arguments = [
        repr(list(value) if isinstance(value, tuple) else value)
        if field.default is MISSING
        else f"{field.name}={value!r}"
        for field in fields(parameter)  # type: ignore[arg-type]
        if (value := getattr(parameter, field.name)) != field.default
    ]
    return f"{type(parameter).__name__}({', '.join(arguments)})"


def intended_parameter(value: Any) -> Parameter | None:
    """Return the parameter that a declaration of another tool most likely means, or None.

    Args:
        value: Words of W&B, Determined, Katib, Optuna or KerasTuner as a mapping, a text such as
            ``tune.loguniform(1e-4, 1e-1)``, a list, set, range or array, a domain of Ray, a
            distribution of Optuna or of SciPy.
    """
    try:
        if isinstance(value, str):
            return _of_text(value.strip())
        if isinstance(value, Mapping):
            return _of_words({str(key).lower(): entry for key, entry in value.items()})
        if isinstance(value, range):
            return Int(value.start, value[-1], step=value.step)
        if isinstance(value, list | tuple):
            return _of_list(value)
        if isinstance(value, set | frozenset):
            return Choice(sorted(value, key=repr))
        return _of_object(value)
    except (InvalidSettingsError, TypeError, ValueError, ArithmeticError, LookupError, SyntaxError):
        return None


def _of_text(text: str) -> Parameter | None:
    if match := _RANGE.fullmatch(text):
        return _of_list([_number(end) for end in match.groups() if end is not None])
    match = _CALL.fullmatch(text)
    if match is None:
        return None
    call: Any = ast.parse(f"f({match[2]})", mode="eval").body
    arguments = [ast.literal_eval(each) for each in call.args]
    named = {each.arg.lower(): ast.literal_eval(each.value) for each in call.keywords}
    kind = match[1].lower().replace("_", "")
    if arguments and isinstance(arguments[0], str) and not kind.startswith(("choice", "grid")):
        arguments = arguments[1:]  # the name of a parameter, as Optuna and KerasTuner have it
    if "choice" in kind or "categorical" in kind or kind == "gridsearch":
        return Choice([*arguments, *named.values()][0])
    if kind == "boolean":
        return Choice([False, True])
    if kind == "fixed":
        return Constant([*arguments, *named.values()][0])
    if "uniform" not in kind and "int" not in kind and "float" not in kind:
        return None
    words = {**dict(zip(("low", "high"), arguments, strict=False)), **named}
    if len(arguments) > 2:
        words["q"] = arguments[2]
    words["distribution"] = "log" if "log" in kind else str(named.get("sampling", ""))
    words["type"] = "int" if "int" in kind else "float"
    if "randint" in kind and not kind.startswith("q"):
        words["high"] -= 1  # Ray excludes it
    return _of_words(words)


def _of_list(values: Sequence[Any]) -> Parameter:
    if len(values) == 2 and all(map(is_number, values)) and values[0] < values[1]:
        low, high = values
        if isinstance(low, int) and isinstance(high, int):
            return Int(low, high)
        return Float(low, high, log=low > 0 and high / low >= _LOG_FROM)
    return Choice(list(values))


def _of_words(words: Mapping[str, Any]) -> Parameter | None:
    inner = words.get("feasiblespace")
    if isinstance(inner, Mapping):
        words = {**words, **{str(key).lower(): entry for key, entry in inner.items()}}
    for name in _VALUE:
        if name in words:
            return Constant(words[name])
    for name in _OPTIONS:
        if name in words:
            return Choice([_number(each) for each in words[name]])
    kind = str(words.get("type", words.get("parametertype", ""))).lower()
    drawn = " ".join(str(words.get(name, "")) for name in ("distribution", "sampling", "scale"))
    drawn = drawn.strip().lower()
    if "normal" in drawn.replace("lognormal", "normal"):
        return None
    low, high = _ends(words, kind, drawn)
    is_log = "log" in drawn or kind == "log" or words.get("log") is True
    step = _number(words.get("step", words.get("q")))
    is_int = kind in ("int", "integer") or "int" in drawn
    if not kind and (not is_log or step):
        is_int = is_int or all(isinstance(end, int) for end in (low, high, step or 1))
    if step is None and isinstance(words.get("count"), int):  # points of a grid
        step = _grid_step(high - low, words["count"], is_int=is_int)
    if is_int:
        return Int(low, high, log=is_log, step=1 if is_log or step is None else step)
    return Float(low, high, log=is_log, step=None if is_log else step)


def _grid_step(width: Any, count: int, *, is_int: bool) -> Any:
    step = width / (count - 1)
    if not is_int:
        return step
    return int(step) if step == int(step) else None


def _ends(words: Mapping[str, Any], kind: str, drawn: str) -> tuple[Any, Any]:
    """Return both ends of a range, which some tools write as exponents."""
    low, high = (_number(_first(words, names)) for names in (_LOW, _HIGH))
    if kind != "log" and drawn not in ("log_uniform", "q_log_uniform", "inv_log_uniform"):
        return low, high
    base = words.get("base", 10) if kind == "log" else math.e
    if drawn == "inv_log_uniform":
        low, high = -high, -low
    return float(f"{base**low:.6g}"), float(f"{base**high:.6g}")


def _of_object(value: Any) -> Parameter | None:
    owner = type(value).__module__.partition(".")[0]
    if owner == "ray":
        from tune_tf.space.ray_form import from_domain

        parameter = from_domain(value)
        return None if isinstance(parameter, Constant) else parameter
    if owner == "optuna":
        return _of_words(vars(value) if not hasattr(value, "choices") else _options(value.choices))
    if owner == "scipy":
        return _of_scipy(value)
    return Choice(value.tolist()) if owner == "numpy" and getattr(value, "ndim", 0) == 1 else None


def _of_scipy(value: Any) -> Parameter | None:
    low, high = (float(end) for end in value.support())
    name = value.dist.name
    if name in ("uniform", "loguniform", "reciprocal"):
        return Float(low, high, log=name != "uniform")
    return Int(int(low), int(high)) if name == "randint" else None


def _options(choices: Sequence[Any]) -> dict[str, Any]:
    return {"values": list(choices)}


def _first(words: Mapping[str, Any], names: Sequence[str]) -> Any:
    for name in names:
        if name in words:
            return words[name]
    raise LookupError(names)


def _number(value: Any) -> Any:
    """Return the number in a text, as Katib writes it; other values as they are."""
    if isinstance(value, str) and re.fullmatch(_NUMBER, value.strip()):
        number = float(value)
        return int(number) if re.fullmatch(r"[-+]?\d+", value.strip()) else number
    return value
