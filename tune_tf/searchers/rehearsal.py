"""Draws that are tried out before they are made, so that a failed config is not drawn again.

Optuna's samplers look past failed trials. Where the parameters are numbers of a range, the same
config is not drawn twice anyway; where all of them are options or steps, it is.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.storages import BaseStorage, InMemoryStorage
from optuna.trial import FrozenTrial, TrialState

from tune_tf.outcome import CONFIG_CHANGED_AT, STOP_REASON, Outcome
from tune_tf.searchers.suggestions import Suggest

Point = frozenset[tuple[str, Any]]
"""The parameters of a trial."""

_MOST_DRAWS = 20


@dataclass(frozen=True)
class Draw:
    """What a sampler came up with.

    Args:
        params: Optuna's parameters.
        system_attrs: What the sampler noted on the trial.
    """

    params: dict[str, Any]
    system_attrs: dict[str, Any]


def diverged_points(trials: Iterable[FrozenTrial]) -> set[Point]:
    """Return the parameters of trials that gave NaN or Inf, where they might be drawn again."""
    return {
        point_of(trial)
        for trial in trials
        if trial.state is TrialState.FAIL
        and trial.user_attrs.get(STOP_REASON) == Outcome.DIVERGED.value
        and CONFIG_CHANGED_AT not in trial.user_attrs  # then it was not these parameters' doing
        and trial.params
        and all(map(_is_discrete, trial.distributions.values()))
    }


def point_of(trial: FrozenTrial) -> Point:
    """Return a trial's parameters as a key."""
    return frozenset(trial.params.items())


def rehearse(
    study: optuna.Study, storage: BaseStorage, suggest: Suggest, avoided: set[Point]
) -> Draw:
    """Return the first of a sampler's draws that is not to be avoided, or else the last of a few.

    The study gets no trial. What the sampler notes on a study is kept.

    Args:
        study: The study, with its sampler.
        storage: Where it is kept.
        suggest: The search space.
        avoided: Parameters not to draw.
    """
    scratch, copied = _copy(study, storage)
    study_id = scratch.get_study_id_from_name(study.study_name)
    for _ in range(_MOST_DRAWS):
        asked = copied.ask()
        suggest(asked)
        trial_id = scratch.get_trial_id_from_study_id_trial_number(study_id, asked.number)
        trial = scratch.get_trial(trial_id)
        if point_of(trial) not in avoided:
            break
        scratch.set_trial_state_values(trial_id, TrialState.FAIL)
    own_id = storage.get_study_id_from_name(study.study_name)
    before = storage.get_study_system_attrs(own_id)
    for key, value in scratch.get_study_system_attrs(study_id).items():
        if before.get(key) != value:
            storage.set_study_system_attr(own_id, key, value)
    return Draw(trial.params, trial.system_attrs)


def _copy(study: optuna.Study, storage: BaseStorage) -> tuple[BaseStorage, optuna.Study]:
    """Return a study like another in memory, with the same sampler."""
    scratch, name = InMemoryStorage(), study.study_name
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        optuna.copy_study(from_study_name=name, from_storage=storage, to_storage=scratch)
        return scratch, optuna.load_study(study_name=name, storage=scratch, sampler=study.sampler)
    finally:
        optuna.logging.set_verbosity(verbosity)


def _is_discrete(distribution: BaseDistribution) -> bool:
    return not isinstance(distribution, FloatDistribution) or distribution.step is not None
