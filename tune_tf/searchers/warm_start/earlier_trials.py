"""Trials of an earlier sweep, read from where they were kept, in a form that any study can take."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import optuna
from optuna.trial import FrozenTrial, TrialState

from tune_tf.errors import InvalidSettingsError, near_ones
from tune_tf.searchers.objectives import SearchObjectives
from tune_tf.searchers.space_record import constants_of
from tune_tf.searchers.storage.study_storage import (
    JOURNAL_SUFFIXES,
    is_journal,
    open_storage,
    quiet_logging,
    shown,
)

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

_PARENT = "mlflow.parentRunId"
_STATES = {"FINISHED": TrialState.COMPLETE, "KILLED": TrialState.PRUNED}


@dataclass(frozen=True)
class EarlierTrial:
    """One trial that was run elsewhere.

    Args:
        key: What its source knows it by.
        state: How it ended in Optuna's terms.
        params: Value by path: as Optuna stores it or, in text, as MLflow does.
        text: Whether the parameters are texts.
        values: The objectives' values; None for one that was stopped early.
        curve: The leading objective's values by iteration.
        violations: By how much each constraint is broken, by its text; None if it is not known.
        constants: Values by path that are no parameters of Optuna's, as far as they are known.
    """

    key: str
    state: TrialState
    params: Mapping[str, Any]
    text: bool
    values: tuple[float, ...] | None
    curve: Mapping[int, float]
    violations: Mapping[str, float] | None
    constants: Mapping[str, Any] = field(default_factory=dict)


class Source(Protocol):
    """Where earlier trials are read from."""

    def read(self, goals: SearchObjectives) -> Iterator[EarlierTrial]:
        """Yield the trials that ended.

        Raises:
            InvalidSettingsError: The source cannot be read, or has other objectives.
        """
        ...


@dataclass(frozen=True)
class StudySource:
    """A study of Optuna's.

    Args:
        storage: A sweep's folder, a journal file or a database URL; with ``#name`` at the end where
            it holds several studies.
    """

    storage: str

    def read(self, goals: SearchObjectives) -> Iterator[EarlierTrial]:
        """Yield the trials that ended without a failure."""
        study = self._open()
        if study.directions != goals.directions:
            found = " and ".join(each.name.lower() for each in study.directions)
            raise InvalidSettingsError(
                [
                    (
                        f"warm_start_from {self.storage!r}: its study was made to {found}, which "
                        f"is not the objective ({goals}); name a sweep of the same objective"
                    )
                ]
            )
        theirs = study.user_attrs.get(OBJECTIVE, str(goals))
        if theirs != str(goals):
            raise InvalidSettingsError(
                [
                    (
                        f"warm_start_from {self.storage!r}: its objective is {theirs}, this one's "
                        f"is {goals}; name a sweep of the same objective"
                    )
                ]
            )
        constants = constants_of(study)
        for trial in study.get_trials(deepcopy=False):
            if trial.state in (TrialState.COMPLETE, TrialState.PRUNED):
                yield _of_study(trial, goals, constants)

    def _open(self) -> optuna.Study:
        place, _, name = self.storage.partition("#")
        if "://" not in place and Path(place).is_dir():
            place = str(self._journal_of(Path(place)))
        missing = "://" not in place and not Path(place).is_file()
        if missing or not (is_journal(place) or "://" in place):
            raise InvalidSettingsError(
                [
                    (
                        f"warm_start_from {self.storage!r} must be a sweep's folder, a journal "
                        "file, a database URL or mlflow:<experiment>; there is no such file"
                    )
                ]
            )
        storage = open_storage(place)
        with quiet_logging():
            names = optuna.get_all_study_names(storage)
            if not name and len(names) == 1:
                [name] = names
            if name not in names:
                known = ", ".join(repr(each) for each in sorted(names)) or "none"
                raise InvalidSettingsError(
                    [
                        (
                            f"warm_start_from {self.storage!r}: say which study by {place}#name; "
                            f"there are {known}{near_ones(name, names)}"
                        )
                    ]
                )
            return optuna.load_study(study_name=name, storage=storage)

    def _journal_of(self, folder: Path) -> Path:
        journals = [each for each in sorted(folder.iterdir()) if each.suffix in JOURNAL_SUFFIXES]
        if len(journals) != 1:
            raise InvalidSettingsError(
                [
                    (
                        f"warm_start_from {str(folder)!r}: a sweep's folder holds one journal, "
                        f"this one {len(journals)}; name the study's file or database URL instead"
                    )
                ]
            )
        return journals[0]


@dataclass(frozen=True)
class MLflowSource:
    """The trials' runs of an MLflow experiment: those with a parent.

    Args:
        experiment_name: Name of the experiment.
        tracking_uri: Where MLflow keeps it; None for what MLflow's environment says.
    """

    experiment_name: str
    tracking_uri: str | None = None

    def read(self, goals: SearchObjectives) -> Iterator[EarlierTrial]:
        """Yield the runs that finished or were stopped early."""
        from mlflow import MlflowClient  # late: it takes seconds
        from mlflow.exceptions import MlflowException

        try:
            client = MlflowClient(tracking_uri=self.tracking_uri)
            experiment = client.get_experiment_by_name(self.experiment_name)
            names = [each.name for each in client.search_experiments()] if not experiment else []
        except MlflowException as error:
            raise self._unusable(str(error).partition("\n")[0]) from error
        if experiment is None:
            near = near_ones(self.experiment_name, names)
            raise self._unusable(f"there is no such experiment{near}")
        token = None
        while True:
            page = client.search_runs(
                [experiment.experiment_id], order_by=["attributes.start_time"], page_token=token
            )
            for run in page:
                if _PARENT in run.data.tags and run.info.status in _STATES:
                    yield _of_run(client, run, goals)
            token = page.token
            if not token:
                return

    def _unusable(self, why: str) -> InvalidSettingsError:
        where = "" if self.tracking_uri is None else f" at {shown(self.tracking_uri)}"
        return InvalidSettingsError(
            [f"warm_start_from 'mlflow:{self.experiment_name}'{where} cannot be read: {why}"]
        )


OBJECTIVE = "objective"
"""User attribute of a study: its objectives as text, ``min loss, max accuracy``."""


def _of_study(
    trial: FrozenTrial, goals: SearchObjectives, constants: Mapping[str, Any]
) -> EarlierTrial:
    told = {str(each): trial.constraints.get(str(each)) for each in goals.constraints}
    known = {key: value for key, value in told.items() if value is not None}
    return EarlierTrial(
        key=str(trial.number),
        state=trial.state,
        params=trial.params,
        text=False,
        values=tuple(trial.values) if trial.state is TrialState.COMPLETE else None,
        curve=trial.intermediate_values,
        violations=known if len(known) == len(told) else None,
        constants=constants,
    )


def _of_run(client: "MlflowClient", run: "Run", goals: SearchObjectives) -> EarlierTrial:
    metrics = run.data.metrics
    state = _STATES[run.info.status]
    history = client.get_metric_history(run.info.run_id, goals.leading.metric)
    known = all(each.metric in metrics for each in goals.constraints)
    return EarlierTrial(
        key=run.info.run_id,
        state=state,
        params=run.data.params,
        text=True,
        values=goals.values(metrics) if state is TrialState.COMPLETE else None,
        curve={point.step: point.value for point in history},
        violations=goals.violations(metrics) if known else None,
    )
