"""Search space of a KerasTuner hypermodel."""

import itertools
import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from tune_tf.errors import ErrorDetail, InvalidSettingsError
from tune_tf.space import Choice, Constant, Float, Int, Parameter, SearchSpace
from tune_tf.space.declaration import DECLARATION_KINDS, WHEN
from tune_tf.space.paths import SEPARATOR

HyperparameterConditions = tuple[tuple[str, tuple[Any, ...]], ...]
"""Names of hyperparameters, outermost scope first, each with its allowed values."""

HyperparameterKey = tuple[str, HyperparameterConditions]
"""Identifier of a hyperparameter: its name may occur in several scopes."""

HyperparameterValues = Mapping[str, Any]
"""Values by hyperparameter name."""

_MAX_LISTED = 64
"""Maximum size of an integer range whose values are all probed."""


@dataclass(frozen=True)
class Hyperparameter:
    """Hyperparameter that a build declares, named as in ``HyperParameters.values``.

    ``conditions`` are the conditional scopes around it, which ``parameter`` lacks; ``record`` is
    its serialized form for ``HyperParameters.from_config``.
    """

    name: str
    conditions: HyperparameterConditions
    parameter: Parameter
    default: Any
    record: Mapping[str, Any]

    @classmethod
    def of(cls, hp: Any, record: Mapping[str, Any]) -> "Hyperparameter":
        """Convert an entry of ``HyperParameters.space``, whose serialized form is ``record``.

        Raises:
            InvalidSettingsError: It has no counterpart.
        """
        conditions = tuple((each.name, tuple(each.values)) for each in hp.conditions)
        return cls(hp.name, conditions, _parameter(hp), hp.default, record)

    @property
    def key(self) -> HyperparameterKey:
        """Identifier of the hyperparameter."""
        return self.name, self.conditions

    @property
    def parents(self) -> tuple[tuple[HyperparameterKey, tuple[Any, ...]], ...]:
        """Hyperparameters that it depends on, with their allowed values.

        KerasTuner requires that the parent of a scope is declared in the scopes around it.
        """
        return tuple(
            ((name, self.conditions[:depth]), values)
            for depth, (name, values) in enumerate(self.conditions)
        )

    def active(self, values: HyperparameterValues) -> bool:
        """Return whether all its scopes are active."""
        return all(name in values and values[name] in allowed for name, allowed in self.conditions)

    @property
    def ends(self) -> tuple[Any, ...]:
        """All options, or the two ends of a range."""
        match self.parameter:
            case Choice(options):
                return tuple(options)
            case Float(low, high) | Int(low, high):
                return (low, high) if low < high else (low,)
            case Constant(value):
                return (value,)
        raise TypeError(f"{type(self.parameter).__name__} does not come from a hyperparameter")

    @property
    def all_values(self) -> tuple[Any, ...] | None:
        """All values; None if there are too many to probe each."""
        match self.parameter:
            case Int(low, high, step=step):
                listed = range(low, high + 1, step)
                return tuple(listed) if len(listed) <= _MAX_LISTED else None
            case Float(low, high):
                return None if low < high else (low,)
        return self.ends


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


When = dict[str, tuple[Any, ...]]


@dataclass(frozen=True)
class HypermodelSpace:
    """Search space of a hypermodel, with its KerasTuner names.

    Args:
        paths: Paths by hyperparameter name; several if it occurs in mutually exclusive scopes.
        hyperparameters: All hyperparameters found, parents first.
        others_keep_defaults: Whether hyperparameters that are not among these are meant to have
            their defaults.
    """

    space: SearchSpace
    paths: Mapping[str, tuple[str, ...]]
    hyperparameters: tuple[Hyperparameter, ...]
    others_keep_defaults: bool = False


@dataclass
class _Entry:
    path: str
    hp: Hyperparameter
    when: When


def hypermodel_space(
    hyperparameters: Mapping[HyperparameterKey, Hyperparameter],
    conditions: Mapping[HyperparameterKey, Mapping[HyperparameterKey, tuple[Any, ...]]],
) -> HypermodelSpace:
    """Return the search space of hyperparameters, which must be ordered parents first.

    ``conditions`` has the values of others under which each is used, besides its scopes.

    Raises:
        InvalidSettingsError: A name has different values in scopes that can be active together, for
            which KerasTuner would use either.
    """
    entries: dict[HyperparameterKey, _Entry] = {}  # several hyperparameters may share one
    errors: list[ErrorDetail] = []
    groups = {group for name, _ in hyperparameters for group in _groups(_path(name))}
    for key, hp in hyperparameters.items():
        when = _when(hp, conditions.get(key, {}), entries)
        if when is None:
            continue
        by_path = {entry.path: entry for entry in entries.values()}
        rivals = [entry for entry in by_path.values() if entry.hp.name == hp.name]
        equal = (entry for entry in rivals if entry.hp.parameter == hp.parameter)
        entry = next((entry for entry in equal if _join(entry, when)), None)
        if entry is None and all(_exclude(rival.when, when) for rival in rivals):
            entry = _Entry(_free_path(hp.name, by_path.keys() | groups), hp, when)
        if entry is None:
            text = (
                "is declared with different values, or in different scopes, that can be active "
                "together: it then has one value for both; give each a separate name"
            )
            errors.append(ErrorDetail(hp.name, text))
            continue
        entries[key] = entry
    if errors:
        raise InvalidSettingsError(errors)
    by_path = {entry.path: entry for entry in entries.values()}
    paths: dict[str, tuple[str, ...]] = {}
    for path, entry in by_path.items():
        paths[entry.hp.name] = (*paths.get(entry.hp.name, ()), path)
    return HypermodelSpace(
        SearchSpace({path: _conditional(e.hp.parameter, e.when) for path, e in by_path.items()}),
        paths,
        tuple(hyperparameters.values()),
    )


def _when(
    hp: Hyperparameter,
    conditions: Mapping[HyperparameterKey, tuple[Any, ...]],
    entries: Mapping[HyperparameterKey, _Entry],
) -> When | None:
    """Return the condition of a hyperparameter, by path; None if it is never active."""
    when: When = {}
    for parent, values in (*hp.parents, *conditions.items()):
        entry = entries.get(parent)
        if entry is None:
            return None
        allowed = [value for value in values if entry.hp.parameter.error_for(value) is None]
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
