"""In-memory Optuna study of a sweep's trials, for Optuna's plots."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import TrialState, create_trial

from tune_tf.formatting import value_text
from tune_tf.objective import Objective
from tune_tf.outcome import is_finite
from tune_tf.report.report_data import ReportData, ReportTrial
from tune_tf.secrets import mask_secrets
from tune_tf.space import Choice, Int
from tune_tf.space.parameter import is_number


def recorded_state(trial: ReportTrial) -> TrialState:
    """Return the state that the trial has in the sweep's own study."""
    outcome = trial.result.outcome
    return TrialState.RUNNING if outcome is None else TrialState[outcome.optuna]


def study_of(
    data: ReportData,
    objectives: Sequence[Objective],
    state_of: Callable[[ReportTrial], TrialState] = recorded_state,
) -> optuna.Study:
    """Return a study of the trials, each with its number, in the states that a plot needs.

    A trial without a finite value of each objective is never complete. Waiting trials take the
    place of numbers that are missing.
    """
    distributions, params = _parameters(data)
    trials = {trial.number: trial for trial in data.trials}
    study = optuna.create_study(
        directions=["maximize" if each.mode == "max" else "minimize" for each in objectives]
    )
    for number in range(max(trials, default=-1) + 1):
        state = state_of(trials[number]) if number in trials else TrialState.WAITING
        if state is TrialState.WAITING:
            study.add_trial(create_trial(state=state))
            continue
        trial = trials[number]
        values: Any = [trial.result.metrics.get(each.metric) for each in objectives]
        if state is TrialState.COMPLETE and not all(map(is_finite, values)):
            state = TrialState.FAIL
        frozen = create_trial(
            state=state,
            values=values if state is TrialState.COMPLETE else None,
            params=params[number],
            distributions={path: distributions[path] for path in params[number]},
            intermediate_values=dict(trial.curve),
        )
        if data.result.config.constraints:
            frozen.set_constraint("constraints", 0.0 if trial.result.feasible else 1.0)
        if trial.view.began_s and trial.end_s:
            frozen.datetime_start = _local_time(trial.view.began_s)
            if state is not TrialState.RUNNING:
                frozen.datetime_complete = _local_time(trial.end_s)
        study.add_trial(frozen)
    return study


def _local_time(seconds: float) -> datetime:
    """Return seconds since 1970 as Optuna writes times."""
    return datetime.fromtimestamp(seconds)  # noqa: DTZ006 - without a time zone


def _parameters(
    data: ReportData,
) -> tuple[dict[str, BaseDistribution], dict[int, dict[str, Any]]]:
    """Return the distributions of the searched parameters, and their values by trial number.

    Ranges include the values that a population-based scheduler perturbed out of them.
    """
    params: dict[int, dict[str, Any]] = {trial.number: {} for trial in data.trials}
    distributions: dict[str, BaseDistribution] = {}
    for path in data.searched:
        parameter: Any = data.result.config.space.parameters[path]
        found = {it.number: it.config[path] for it in data.trials if path in it.config}
        if isinstance(parameter, Choice):
            found = {number: _label(value) for number, value in found.items()}
            options = [*map(_label, parameter.options), *found.values()]
            distributions[path] = CategoricalDistribution([*dict.fromkeys(options)])
        else:
            ends = [parameter.low, parameter.high, *filter(is_number, found.values())]
            is_whole = isinstance(parameter, Int) and all(isinstance(end, int) for end in ends)
            kind = IntDistribution if is_whole else FloatDistribution
            distributions[path] = kind(min(ends), max(ends), log=parameter.log)
            found = {number: value for number, value in found.items() if is_number(value)}
        for number, value in found.items():
            params[number][path] = value
    return distributions, params


def _label(option: Any) -> Any:
    """Return an option as plots show it: numbers and None as they are, else a text."""
    if option is None or is_number(option):
        return option
    return mask_secrets(value_text(option, limit=1000))
