"""Replay: the study of a sweep that goes on, from what its record knows of its trials."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from optuna.trial import FrozenTrial, TrialState, create_trial

from tune_tf.outcome import CONFIG_CHANGED_AT, MLFLOW_RUN_ID, Outcome
from tune_tf.searchers.criteria import SearchCriteria
from tune_tf.searchers.earlier_trial import dense_params, params_here
from tune_tf.searchers.trial_attrs import POINT, TUNE_TRIAL_ID
from tune_tf.searchers.trial_progress import TrialProgress
from tune_tf.space import SearchSpace, flatten
from tune_tf.space.optuna_form import value_of

_ANYWAY: Final = ("constraints", "fixed_params", "study:")
"""How the keys begin of what follows from results, points and objectives."""

_FOR_RUNNING: Final = "relative_params"
"""How the keys go on, after the sampler's name, of what only matters while a trial is drawn."""


@dataclass(frozen=True)
class ReplayedTrial:
    """Trial of a sweep that goes on.

    Args:
        trial_id: Tune's id.
        config: The nested config that the searcher suggested.
        outcome: How it ended; None for one that goes on.
        cause: Why, in one sentence, where there is more to say.
        results: Its results in order, as Tune reported them, flat or nested.
        run_id: MLflow's id of its run, if it is known.
        note: What :meth:`OptunaSearcher.note_of` returned after it was suggested.
    """

    trial_id: str
    config: Mapping[str, Any]
    outcome: Outcome | None = None
    cause: str | None = None
    results: Sequence[Mapping[str, Any]] = ()
    run_id: str | None = None
    note: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ended(self) -> bool:
        """Whether Optuna is to know an end."""
        return self.outcome not in (None, Outcome.INTERRUPTED)

    def progress(self, criteria: SearchCriteria) -> TrialProgress:
        """Return what the results say."""
        progress = TrialProgress()
        for result in self.results:
            progress.add(flatten(result), criteria)
        return progress


def frozen_trials(
    trials: Iterable[tuple[ReplayedTrial, TrialProgress]],
    space: SearchSpace,
    criteria: SearchCriteria,
    points: Sequence[Mapping[str, Any]],
    *,
    dense: bool = False,
) -> list[FrozenTrial]:
    """Return the trials as they would be had each been suggested, reported and told.

    Args:
        trials: The trials in order of number, with what their results say.
        space: The search space.
        criteria: Objectives and constraints.
        points: Optuna's parameters of the configs to try first.
        dense: Whether the sampler needs values of inactive parameters.
    """
    distributions, waiting, frozen = space.distributions(), list(enumerate(points)), []
    for number, (trial, progress) in enumerate(trials):
        params = params_here(space, trial.config)
        if dense:
            params = dense_params(space, params | dict(trial.note.get("params", {})), number)
        attrs: dict[str, Any] = {TUNE_TRIAL_ID: trial.trial_id}
        system_attrs = dict(trial.note.get("system_attrs", {}))
        if waiting and waiting[0][1].items() <= params.items():
            index, point = waiting.pop(0)
            attrs[POINT], system_attrs["fixed_params"] = index, dict(point)
        state, values, violations = TrialState.RUNNING, None, {}
        if trial.outcome is not None and trial.ended:
            end = progress.end(trial.outcome, trial.cause, criteria)
            state, values, violations = end.state, end.values, end.violations
            attrs |= end.attrs
            if trial.run_id:
                attrs[MLFLOW_RUN_ID] = trial.run_id
        elif progress.changed_at is not None:
            attrs[CONFIG_CHANGED_AT] = progress.changed_at
        if state is TrialState.PRUNED and len(criteria.objectives) == 1:
            values = [progress.curve[max(progress.curve)]]  # as Optuna's own `tell`
        frozen.append(
            create_trial(
                state=state,
                values=values,
                params=params,
                distributions={path: distributions[path] for path in params},
                user_attrs=attrs,
                system_attrs=system_attrs,
                intermediate_values=progress.curve,
                constraints=violations,
            )
        )
    return frozen


def sampler_note(
    trial: FrozenTrial, space: SearchSpace, study_attrs: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what a sampler notes with a trial, such as a generation; see :class:`ReplayedTrial`.

    ``study_attrs`` are system attributes of the study that are new.
    """
    values: dict[str, Any] = {}
    for path, parameter in space.parameters.items():
        if parameter.condition.holds(values):
            values[path] = value_of(trial.params.get(path), parameter)
    note = {
        "params": {path: value for path, value in trial.params.items() if path not in values},
        "system_attrs": {
            key: value
            for key, value in trial.system_attrs.items()
            if not key.startswith(_ANYWAY) and not key.partition(":")[2].startswith(_FOR_RUNNING)
        },
        "study": {key: value for key, value in study_attrs.items() if not key.startswith(_ANYWAY)},
    }
    return {name: content for name, content in note.items() if content}
