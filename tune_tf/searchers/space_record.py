"""Search space recorded in a study, and compared when the study is reopened.

Optuna accepts any parameter in any study and rejects only changed options of a choice, in the
middle of a trial. So a study keeps its space as a user attribute, one text per parameter.
"""

import json
import logging
from collections.abc import Mapping
from typing import Any, Final

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    check_distribution_compatibility,
)

from tune_tf.errors import SweepConflictError
from tune_tf.searchers.space_adapter import SpaceLike, distributions_of
from tune_tf.space import Choice, Constant, Parameter, SearchSpace
from tune_tf.space.declaration import declaration_of
from tune_tf.space.optuna_form import labels
from tune_tf.space.paths import dotted

_log = logging.getLogger(__name__)

SEARCH_SPACE: Final = "search_space"
"""User attribute of a study: text by path of each parameter, constants included."""


def changed_lines(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """Return a line for each parameter that differs: ``+`` added, ``-`` removed, ``~`` changed."""
    return [
        *(f"  + {dotted(path)}: {text}" for path, text in new.items() if path not in old),
        *(f"  - {dotted(path)}: {text}" for path, text in old.items() if path not in new),
        *(
            f"  ~ {dotted(path)}: {text} -> {new[path]}"
            for path, text in old.items()
            if new.get(path, text) != text
        ),
    ]


def text_by_path(space: SpaceLike) -> dict[str, str] | None:
    """Return a space as text by path; None for a callable, which cannot be inspected."""
    if isinstance(space, SearchSpace):
        return {path: _text_of(each) for path, each in space.parameters.items()}
    distributions = distributions_of(space)
    if distributions is None:
        return None
    return {path: repr(each) for path, each in distributions.items()}


def constants_of(study: optuna.Study) -> dict[str, Any]:
    """Return the recorded constants of a study's search space, by path."""
    constants = {}
    for path, text in study.user_attrs.get(SEARCH_SPACE, {}).items():
        try:
            entry = json.loads(text)
        except ValueError:  # not from a SearchSpace
            continue
        if isinstance(entry, dict) and entry.keys() == {"constant"}:
            constants[path] = entry["constant"]
    return constants


def check_space(study: optuna.Study, space: SpaceLike, *, allow_changed: bool) -> None:
    """Compare a space with the one recorded in a study, then record it.

    Args:
        study: The study.
        space: The new space.
        allow_changed: Whether the space may differ.

    Raises:
        SweepConflictError: The spaces differ, and that is not allowed or not possible.
    """
    new = text_by_path(space)
    if new is None:
        return
    old = study.user_attrs.get(SEARCH_SPACE)
    changes = changed_lines(old or new, new)
    change = "\n".join(changes)
    if changes and not allow_changed:
        raise SweepConflictError(
            f"study {study.study_name!r} was created with another search space:\n{change}\n"
            "use the old space or another study_name, or set allow_changed_space"
        )
    if changes or old is None:
        _refuse_incompatible(study, space)
    if changes:
        _log.warning(
            "study %r continues with a changed search space:\n%s", study.study_name, change
        )
    if changes or old is None:
        study.set_user_attr(SEARCH_SPACE, new)


def _text_of(parameter: Parameter) -> str:
    """Return a parameter's sweep-file declaration on one line."""
    entry = declaration_of(parameter)
    if isinstance(parameter, Choice):
        entry = {**entry, "choice": labels(parameter.options)}
    elif isinstance(parameter, Constant) and not isinstance(entry, dict):
        entry = {"constant": entry}
    return json.dumps(entry, default=repr)


def _stored_distributions(study: optuna.Study) -> dict[str, BaseDistribution]:
    """Return the latest distribution of each parameter in the study's trials."""
    stored: dict[str, BaseDistribution] = {}
    for trial in study.get_trials(deepcopy=False):
        stored.update(trial.distributions)
    return stored


def _refuse_incompatible(study: optuna.Study, space: SpaceLike) -> None:
    """Reject changes that Optuna cannot hold in one study."""
    new, refused = distributions_of(space) or {}, []
    for path, old in _stored_distributions(study).items():
        if path not in new:
            continue
        try:
            check_distribution_compatibility(old, new[path])
        except ValueError:
            choice = isinstance(old, CategoricalDistribution)
            what = "options" if choice and isinstance(new[path], type(old)) else "kind"
            refused.append(f"  {dotted(path)}: other {what}: {old!r} -> {new[path]!r}")
    if refused:
        lines = "\n".join(refused)
        raise SweepConflictError(
            f"study {study.study_name!r} cannot continue with this search space: Optuna keeps one "
            f"kind, scale and set of options for each parameter of a study:\n{lines}\n"
            "use another study_name with warm_start_from this study"
        )
