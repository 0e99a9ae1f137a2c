"""Results of an earlier sweep, put into a study as trials that were evaluated already."""

import logging
import os
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import FixedTrial, FrozenTrial, TrialState, create_trial

from tune_tf.errors import InvalidSettingsError
from tune_tf.outcome import is_finite
from tune_tf.searchers.earlier_trials import EarlierTrial, MLflowSource, Source, StudySource
from tune_tf.searchers.facts import WARM_START
from tune_tf.searchers.goals import Goals
from tune_tf.searchers.points import label_of
from tune_tf.searchers.suggestions import GivenSpace, Space, suggest_of
from tune_tf.space import Choice, Constant, SearchSpace
from tune_tf.space.frozen import hashable
from tune_tf.space.optuna_form import distribution
from tune_tf.space.paths import dotted

_log = logging.getLogger(__name__)

WARM_START_KEY: Final = "warm_start_key"
"""User attribute of an Optuna trial that was run elsewhere: what its source knows it by."""

_MLFLOW = "mlflow:"


@dataclass(frozen=True)
class WarmStart:
    """Where earlier results come from.

    Args:
        source: A sweep's folder; a study's journal file or database URL, with ``#name`` at the end
            where it holds several studies; or ``mlflow:<experiment name>``.
        tracking_uri: Where MLflow keeps the experiment; None for what MLflow's environment says.

    Raises:
        InvalidSettingsError: The source is none of these; or a tracking URI is given for no
            experiment.
    """

    source: str | os.PathLike[str]
    tracking_uri: str | None = None

    def __post_init__(self) -> None:
        """Refuse bad values when made."""
        faults = []
        if not isinstance(self.source, str | os.PathLike) or not str(self.source):
            faults.append(f"warm_start_from must be a path or a text, not {self.source!r}")
        elif str(self.source) == _MLFLOW:
            faults.append("warm_start_from 'mlflow:' names no experiment: write mlflow:<name>")
        if faults:
            raise InvalidSettingsError(faults)
        object.__setattr__(self, "source", os.fspath(self.source))

    @property
    def opened(self) -> Source:
        """What reads it."""
        text = str(self.source)
        if text.startswith(_MLFLOW):
            return MLflowSource(text.removeprefix(_MLFLOW), self.tracking_uri)
        return StudySource(text)


@dataclass(frozen=True)
class Taken:
    """What a warm start took over.

    Args:
        source: Where from.
        num_taken: Trials that are in the study now.
        left_out: How many trials were not taken, by the reason.
    """

    source: str
    num_taken: int
    left_out: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return ``12 trials taken over from PATH; 3 left out: 3 lack a value for rate``."""
        text = f"{self.num_taken} earlier trials taken over from {self.source}"
        if not self.left_out:
            return text
        reasons = ", ".join(f"{count} because {why}" for why, count in self.left_out.items())
        return f"{text}; {sum(self.left_out.values())} left out: {reasons}"


class NotHeldError(ValueError):
    """A space does not hold an earlier trial; says why."""


def take_over(
    study: optuna.Study, space: GivenSpace, goals: Goals, start: WarmStart, *, dense: bool = False
) -> Taken:
    """Add the earlier trials that a space holds to a study, once; tell it in the log.

    Args:
        study: The study.
        space: Its search space.
        goals: Its objectives and constraints.
        start: Where the trials are.
        dense: Whether the sampler is to be shown inactive parameters too; they are drawn.

    Raises:
        InvalidSettingsError: The source cannot be read, or has other objectives.
    """
    source = str(start.source)
    done = study.user_attrs.get(WARM_START, {}).get(source)
    if done is not None:
        return Taken(source, done["num_taken"], done["left_out"])
    had = {
        trial.user_attrs.get(WARM_START_KEY)
        for trial in study.get_trials(deepcopy=False)
        if trial.user_attrs.get(WARM_START) == source
    }
    num_taken, left_out = len(had), Counter[str]()
    for earlier in start.opened.read(goals):
        if earlier.key in had:
            continue
        try:
            trial = _evaluated(earlier, space, goals, source)
            if dense and isinstance(space, SearchSpace):
                trial = _filled(trial, space, np.random.default_rng(num_taken))
            study.add_trial(trial)
            num_taken += 1
        except NotHeldError as error:
            left_out[str(error)] += 1
    taken = Taken(source, num_taken, dict(left_out))
    record = {"num_taken": num_taken, "left_out": dict(left_out)}
    study.set_user_attr(WARM_START, {**study.user_attrs.get(WARM_START, {}), source: record})
    _log.info("%s", taken) if num_taken else _log.warning("%s", taken)
    return taken


def _evaluated(earlier: EarlierTrial, space: GivenSpace, goals: Goals, source: str) -> FrozenTrial:
    """Return an earlier trial as one of a study with another space.

    Raises:
        NotHeldError: The space does not hold it, or it lacks what the goals need.
    """
    curve = {step: value for step, value in earlier.curve.items() if is_finite(value)}
    if earlier.state is TrialState.COMPLETE and not earlier.values:
        raise NotHeldError(f"they have no finite value of {goals}")
    if earlier.state is TrialState.PRUNED and not curve:
        raise NotHeldError(f"they were stopped before a value of {goals.leading.metric}")
    if goals.constraints and earlier.violations is None:
        raise NotHeldError("they do not tell all constrained metrics")
    params, distributions = _held(_typed(earlier, space), space)
    single = len(goals.objectives) == 1
    values = earlier.values or ((curve[max(curve)],) if single else None)
    trial = create_trial(
        state=earlier.state,
        params=params,
        distributions=distributions,
        values=list(values) if values else None,
        intermediate_values=curve,
        user_attrs={WARM_START: source, WARM_START_KEY: earlier.key},
    )
    for key, violation in (earlier.violations or {}).items():
        trial.set_constraint(key, violation)
    return trial


def _filled(trial: FrozenTrial, space: SearchSpace, rng: np.random.Generator) -> FrozenTrial:
    """Return a trial with values drawn for the parameters that it has not."""
    params, distributions = dict(trial.params), dict(trial.distributions)
    for path, parameter in space.parameters.items():
        if path not in params and not isinstance(parameter, Constant):
            value = parameter.draw(rng)
            params[path] = label_of(value, parameter) if isinstance(parameter, Choice) else value
            distributions[path] = distribution(parameter)
    trial.distributions = distributions
    trial.params = params
    return trial


def _typed(earlier: EarlierTrial, space: GivenSpace) -> dict[str, Any]:
    """Return an earlier trial's values by path as Optuna stores them in this space."""
    params = {**earlier.constants, **earlier.params}
    if isinstance(space, SearchSpace):
        for path, parameter in space.parameters.items():
            if path not in params:
                continue
            if isinstance(parameter, Choice) and path in earlier.constants:
                if parameter.fault(params[path]) is None:
                    params[path] = label_of(params[path], parameter)
            elif isinstance(parameter, Choice) and earlier.text:
                params[path] = _option(params[path], parameter)
    if not earlier.text:
        return params
    if isinstance(space, Space):
        space = space.distributions()
    if not isinstance(space, Mapping):
        raise NotHeldError("texts of MLflow cannot be read for a space that is a callable")
    return {path: _parsed(text, space.get(path)) for path, text in params.items()}


def _option(text: str, parameter: Choice) -> Any:
    """Return what Optuna stores for the option that a text stands for."""
    for option in parameter.options:
        if str(option) == text:
            return label_of(option, parameter)
    return text


def _parsed(text: Any, distribution: BaseDistribution | None) -> Any:
    """Return the value that a text stands for; the text if it cannot be one."""
    try:
        match distribution:
            case FloatDistribution():
                return float(text)
            case IntDistribution():
                return int(float(text)) if float(text).is_integer() else float(text)
            case CategoricalDistribution(choices=choices):
                return next((each for each in choices if str(each) == str(text)), text)
    except ValueError:
        return text
    return text


def _held(
    params: Mapping[str, Any], space: GivenSpace
) -> tuple[dict[str, Any], dict[str, BaseDistribution]]:
    """Return the active parameters of a space with their distributions.

    Raises:
        NotHeldError: The space does not hold the values.
    """
    fixed = FixedTrial(dict(params))
    try:
        with warnings.catch_warnings(action="error"):  # Optuna warns of what is out of range
            values = suggest_of(space)(fixed) or {}
    except (ValueError, UserWarning) as error:
        raise NotHeldError(_why(params, fixed, space)) from error
    for path, value in params.items():
        if path in fixed.params:
            continue
        constant = space.parameters.get(path) if isinstance(space, SearchSpace) else None
        if not isinstance(constant, Constant):
            what = "is inactive here" if constant is not None else "is no parameter here"
            raise NotHeldError(f"their {dotted(path)} {what}")
        if path in values and not _same(value, constant.value):
            raise NotHeldError(f"their {dotted(path)} is not {constant.value!r}")
    return dict(fixed.params), dict(fixed.distributions)


def _why(params: Mapping[str, Any], fixed: FixedTrial, space: GivenSpace) -> str:
    """Return why a space does not hold values: the first parameter that was not accepted."""
    if isinstance(space, SearchSpace):
        for path, parameter in space.parameters.items():
            if path in fixed.params or isinstance(parameter, Constant):
                continue
            if path not in params:
                active = parameter.condition.holds(fixed.params)
                if active:
                    return f"they lack {dotted(path)}"
                continue
            return f"their {dotted(path)} is out of range here"
    return "their parameters are out of range here"


def _same(value: Any, constant: Any) -> bool:
    return hashable(value) == hashable(constant) or str(value) == str(constant)
