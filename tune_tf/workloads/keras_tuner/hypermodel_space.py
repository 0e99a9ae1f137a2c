"""Search space of a KerasTuner hypermodel."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from tune_tf.errors import ErrorDetail, InvalidSettingsError
from tune_tf.space import Parameter, SearchSpace
from tune_tf.space.declaration import DECLARATION_KINDS, WHEN
from tune_tf.space.paths import SEPARATOR
from tune_tf.workloads.keras_tuner.hyperparameter import Hyperparameter, HyperparameterKey

When = dict[str, tuple[Any, ...]]


@dataclass(frozen=True)
class HypermodelSpace:
    """Search space of a hypermodel, with its KerasTuner names.

    Args:
        paths: Paths by hyperparameter name; several if it occurs in mutually exclusive scopes.
        defaults: KerasTuner's default of each path.
        hyperparameters: All hyperparameters found, parents first.
    """

    space: SearchSpace
    paths: Mapping[str, tuple[str, ...]]
    defaults: Mapping[str, Any]
    hyperparameters: tuple[Hyperparameter, ...]


@dataclass
class _Entry:
    path: str
    hp: Hyperparameter
    when: When


def hypermodel_space(
    found: Mapping[HyperparameterKey, Hyperparameter],
    inferred: Mapping[HyperparameterKey, Mapping[HyperparameterKey, tuple[Any, ...]]],
) -> HypermodelSpace:
    """Return the search space of hyperparameters, which must be ordered parents first.

    ``inferred`` has the values of others under which each is used, besides its scopes.

    Raises:
        InvalidSettingsError: A name has different values in scopes that can be active together, for
            which KerasTuner would use either.
    """
    entries: dict[HyperparameterKey, _Entry] = {}
    errors: list[ErrorDetail] = []
    groups = {
        group for name, _ in found for group in _groups(SEPARATOR.join(map(_cleaned, _parts(name))))
    }
    for key, hp in found.items():
        when = _when(hp, inferred.get(key, {}), entries)
        if when is None:
            continue
        rivals = list({id(e): e for e in entries.values() if e.hp.name == hp.name}.values())
        joined = next(
            (e for e in rivals if e.hp.parameter == hp.parameter and _join(e, when)), None
        )
        if joined is None and all(_exclude(each.when, when) for each in rivals):
            taken = {each.path for each in entries.values()}
            joined = _Entry(_free_path(hp.name, taken | groups), hp, when)
        if joined is None:
            text = (
                "is declared with different values, or in different scopes, that can be active "
                "together: it then has one value for both; give each a separate name"
            )
            errors.append(ErrorDetail(hp.name, text))
            continue
        entries[key] = joined
    if errors:
        raise InvalidSettingsError(errors)
    unique = list({entry.path: entry for entry in entries.values()}.values())
    paths: dict[str, tuple[str, ...]] = {}
    for entry in unique:
        paths[entry.hp.name] = (*paths.get(entry.hp.name, ()), entry.path)
    return HypermodelSpace(
        SearchSpace({entry.path: _conditional(entry.hp.parameter, entry.when) for entry in unique}),
        paths,
        {entry.path: _default(entry.hp) for entry in unique},
        tuple(found.values()),
    )


def _when(
    hp: Hyperparameter,
    inferred: Mapping[HyperparameterKey, tuple[Any, ...]],
    entries: Mapping[HyperparameterKey, _Entry],
) -> When | None:
    """Return the condition of a hyperparameter, by path; None if it is never active."""
    when: When = {}
    for parent, values in (*hp.parents, *inferred.items()):
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


def _default(hp: Hyperparameter) -> Any:
    """Return the default, or the first value if the default is out of range."""
    return hp.ends[0] if hp.parameter.error_for(hp.default) else hp.default


def _parts(name: str) -> list[str]:
    return name.split(SEPARATOR)


def _groups(path: str) -> list[str]:
    names = path.split(SEPARATOR)
    return [SEPARATOR.join(names[:end]) for end in range(1, len(names))]


def _cleaned(part: str) -> str:
    """Return a part of a name in a form that sweep files allow."""
    part = part.replace(".", "_") or "_"
    return f"{part}_" if part in DECLARATION_KINDS or part == WHEN else part


def _free_path(name: str, taken: Collection[str]) -> str:
    """Return a path for a hyperparameter, numbered if its name is taken."""
    path = wanted = SEPARATOR.join(map(_cleaned, _parts(name)))
    count = 1
    while path in taken:
        count += 1
        path = f"{wanted}-{count}"
    return path
