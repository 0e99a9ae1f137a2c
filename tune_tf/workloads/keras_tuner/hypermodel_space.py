"""Search space of a KerasTuner hypermodel."""

import itertools
import logging
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tune_tf.errors import ErrorDetail, InvalidSettingsError, WorkloadError
from tune_tf.space import Choice, Constant, Float, Int, Parameter, SearchSpace
from tune_tf.space.declaration import DECLARATION_KINDS, WHEN
from tune_tf.space.paths import SEPARATOR

_log = logging.getLogger(__name__)

_MAX_BUILDS = 200

When = dict[str, tuple[Any, ...]]
"""Values of others, by path, with which a parameter is active."""


def find_hyperparameters(
    build: Callable[[Any], Any], probes: Iterable[Mapping[str, Any]] = ()
) -> Any:
    """Return the ``HyperParameters`` that builds declare.

    As a tuner of KerasTuner does, it builds with the defaults and opens each conditional scope. In
    addition it builds with each option of each choice and the highest value of each number, one by
    one, until nothing new appears.

    Args:
        build: Builds with ``HyperParameters``.
        probes: Additional sets of values by name.

    Raises:
        WorkloadError: The build fails with the defaults or with one of ``probes``.
    """
    import keras
    import keras_tuner  # late: loads TensorFlow

    found = keras_tuner.HyperParameters()
    known: set[Any] = set()
    given: list[Mapping[str, Any]] = [{}, *probes]
    queue = [*given]
    for count in itertools.count():
        if not queue or count == _MAX_BUILDS:
            break
        values = queue.pop(0)
        hps = keras_tuner.HyperParameters()
        hps.values = dict(values)
        try:
            with keras.device("cpu:0"):  # the GPUs' memory is the trials'
                build(hps)
        except WorkloadError:
            raise  # the hypermodel is unsupported for any values
        except Exception as error:
            if any(values is each for each in given):
                inputs = f"with {values}" if values else "with the defaults of all hyperparameters"
                raise WorkloadError(
                    f"building the hypermodel {inputs} raised {type(error).__name__}: {error}"
                ) from error
            _log.debug("building with %s raised %r", values, error)
        for hp in hps.space:
            key = (hp.name, _conditions(hp))
            if key not in known:
                known.add(key)
                found.merge([hp])
                scopes = {name: allowed[0] for name, allowed in _conditions(hp)}
                queue += [{**values, **scopes, hp.name: value} for value in _ends(hp)]
    if queue:
        _log.warning(
            "the hypermodel was built %d times and still declares new hyperparameters: those of "
            "rarer combinations are not searched",
            _MAX_BUILDS,
        )
    return found


def _conditions(hp: Any) -> tuple[tuple[str, tuple[Any, ...]], ...]:
    """Return the conditional scopes around a hyperparameter, outermost first."""
    return tuple((each.name, tuple(each.values)) for each in hp.conditions)


def _ends(hp: Any) -> list[Any]:
    """Return the options of a choice, or the highest value of a number, besides the default."""
    match _parameter(hp):
        case Choice(options):
            return [value for value in options if value != hp.default]
        case Int(_, high) | Float(_, high):
            return [high] if high != hp.default else []
    return []


def _parameter(hp: Any) -> Parameter:
    from keras_tuner.engine import hyperparameters as kinds  # late: loads TensorFlow

    if isinstance(hp, kinds.Fixed):
        return Constant(hp.value)
    if isinstance(hp, kinds.Boolean):
        return Choice([True, False])
    if isinstance(hp, kinds.Choice):
        return Choice(list(dict.fromkeys(hp.values)))
    if isinstance(hp, kinds.Int | kinds.Float):
        return _range(hp, whole=isinstance(hp, kinds.Int))
    text = (
        f"hyperparameters of the class {type(hp).__name__} have no counterpart: use hp.Int, "
        "hp.Float, hp.Choice, hp.Boolean or hp.Fixed"
    )
    raise InvalidSettingsError([ErrorDetail(hp.name, text)])


def _range(hp: Any, *, whole: bool) -> Parameter:
    """Convert an ``hp.Int`` or ``hp.Float``.

    KerasTuner documents ``max_value`` of a stepped float as included, but its samplers miss it if
    ``(max_value - min_value) // step`` rounds down (0 to 1 by 0.2). Here it is included.
    """
    make: Any = Int if whole else Float
    low, high, step = hp.min_value, hp.max_value, hp.step
    if hp.sampling != "linear" and step is not None:
        # Powers of a step cannot be expressed as a range.
        return Choice(list(dict.fromkeys(int(v) if whole else float(v) for v in hp.values)))
    if hp.sampling == "reverse_log":
        warnings.warn(
            f"hyperparameter {hp.name!r}: sampling='reverse_log' is searched uniformly from {low} "
            f"to {high}, which holds the same values; 'log' and 'linear' are searched as declared",
            stacklevel=2,
        )
    if step is None or low == high:
        return make(low, high, log=hp.sampling == "log")
    num_steps = int((high - low) / step + 1e-9)
    if num_steps == 0:
        return make(low, low)
    return make(low, low + num_steps * step, step=step)


@dataclass(frozen=True)
class HypermodelSpace:
    """Search space of a hypermodel, with its KerasTuner names.

    Args:
        paths: Paths by hyperparameter name; several if it occurs in mutually exclusive scopes.
        records: All hyperparameters, parents first, as ``HyperParameters.from_config`` takes them.
    """

    space: SearchSpace
    paths: Mapping[str, tuple[str, ...]]
    records: tuple[Any, ...]


@dataclass
class _Entry:
    path: str
    name: str
    parameter: Parameter
    when: When


def hypermodel_space(hps: Any) -> HypermodelSpace:
    """Return the search space of ``HyperParameters``.

    Raises:
        InvalidSettingsError: A hyperparameter has no counterpart, or a name has different values in
            scopes that can be active together, for which KerasTuner would use either.
    """
    entries: dict[Any, _Entry] = {}  # by name and scopes; several may share one
    by_path: dict[str, _Entry] = {}
    errors: list[ErrorDetail] = []
    groups = {group for hp in hps.space for group in _groups(_path(hp.name))}
    for hp in hps.space:
        conditions, parameter = _conditions(hp), _parameter(hp)
        when = _when(conditions, entries)
        if when is None:
            continue
        rivals = [entry for entry in by_path.values() if entry.name == hp.name]
        equal = (entry for entry in rivals if entry.parameter == parameter)
        entry = next((entry for entry in equal if _join(entry, when)), None)
        if entry is None and all(_exclude(rival.when, when) for rival in rivals):
            path = _free_path(hp.name, by_path.keys() | groups)
            entry = by_path[path] = _Entry(path, hp.name, parameter, when)
        if entry is None:
            text = (
                "is declared with different values, or in different scopes, that can be active "
                "together: it then has one value for both; give each a separate name"
            )
            errors.append(ErrorDetail(hp.name, text))
            continue
        entries[hp.name, conditions] = entry
    if errors:
        raise InvalidSettingsError(errors)
    paths: dict[str, tuple[str, ...]] = {}
    for path, entry in by_path.items():
        paths[entry.name] = (*paths.get(entry.name, ()), path)
    space = SearchSpace({path: _conditional(e.parameter, e.when) for path, e in by_path.items()})
    return HypermodelSpace(space, paths, tuple(hps.get_config()["space"]))


def _when(conditions: Any, entries: Mapping[Any, _Entry]) -> When | None:
    """Return the condition of a hyperparameter, by path; None if it is never active."""
    when: When = {}
    for depth, (name, values) in enumerate(conditions):
        # KerasTuner requires that the parent of a scope is declared in the scopes around it.
        entry = entries.get((name, conditions[:depth]))
        if entry is None:
            return None
        allowed = [value for value in values if entry.parameter.error_for(value) is None]
        allowed = [value for value in allowed if value in when.get(entry.path, allowed)]
        if not allowed:
            return None
        when[entry.path] = tuple(dict.fromkeys(allowed))
    return when


def _join(entry: _Entry, when: When) -> bool:
    """Widen an entry's condition to cover another one; return whether that is possible."""
    if _implies(when, entry.when):
        return True
    if _implies(entry.when, when):
        entry.when = when
        return True
    differing = [path for path in when if set(when[path]) != set(entry.when.get(path, ()))]
    if when.keys() != entry.when.keys() or len(differing) != 1:
        return False
    (path,) = differing
    entry.when = {**entry.when, path: tuple(dict.fromkeys((*entry.when[path], *when[path])))}
    return True


def _implies(narrow: When, wide: When) -> bool:
    return all(path in narrow and set(narrow[path]) <= set(wide[path]) for path in wide)


def _exclude(one: When, other: When) -> bool:
    return any(path in other and not set(one[path]) & set(other[path]) for path in one)


def _conditional(parameter: Parameter, when: When) -> Parameter:
    if not when:
        return parameter
    condition = {path: list(values) for path, values in when.items()}
    return type(parameter)(**{**vars(parameter), "when": condition})


def _groups(path: str) -> list[str]:
    names = path.split(SEPARATOR)
    return [SEPARATOR.join(names[:end]) for end in range(1, len(names))]


def _path(name: str) -> str:
    """Return a name in a form that sweep files allow."""
    parts = [part.replace(".", "_") or "_" for part in name.split(SEPARATOR)]
    reserved = (*DECLARATION_KINDS, WHEN)
    return SEPARATOR.join(f"{part}_" if part in reserved else part for part in parts)


def _free_path(name: str, used: Collection[str]) -> str:
    """Return a path for a hyperparameter, numbered if its name is used."""
    numbered = (f"{_path(name)}-{count}" for count in itertools.count(2))
    return next(path for path in itertools.chain([_path(name)], numbered) if path not in used)
