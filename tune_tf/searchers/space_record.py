"""Search space recorded in a study, and compared when the study is reopened.

Optuna accepts any parameter in any study and rejects only changed options of a choice, in the
middle of a trial. So a study keeps its space as a user attribute, one text per parameter.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

import optuna

from tune_tf.errors import SweepConflictError
from tune_tf.space import Choice, Constant, Parameter, SearchSpace
from tune_tf.space.declaration import declaration_of
from tune_tf.space.optuna_form import labels
from tune_tf.space.paths import dotted

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


def constants_of(study: optuna.Study) -> dict[str, Any]:
    """Return the recorded constants of a study's search space, by path."""
    constants = {}
    for path, text in study.user_attrs.get(SEARCH_SPACE, {}).items():
        entry = json.loads(text)
        if isinstance(entry, dict) and entry.keys() == {"constant"}:
            constants[path] = entry["constant"]
    return constants


def check_space(study: optuna.Study, space: SearchSpace) -> None:
    """Compare a space with the one recorded in a study; record it if there is none.

    Raises:
        SweepConflictError: The spaces differ.
    """
    new = {path: _text_of(each) for path, each in space.parameters.items()}
    old = study.user_attrs.get(SEARCH_SPACE)
    if old is None:
        study.set_user_attr(SEARCH_SPACE, new)
    elif changes := changed_lines(old, new):
        lines = "\n".join(changes)
        raise SweepConflictError(
            f"study {study.study_name!r} was created with another search space:\n{lines}\n"
            "use the old space, or another study_name with warm_start_from this study"
        )


def _text_of(parameter: Parameter) -> str:
    """Return a parameter's sweep-file declaration on one line."""
    entry = declaration_of(parameter)
    if isinstance(parameter, Choice):
        entry = {**entry, "choice": labels(parameter.options)}
    elif isinstance(parameter, Constant) and not isinstance(entry, dict):
        entry = {"constant": entry}
    return json.dumps(entry, default=repr)
