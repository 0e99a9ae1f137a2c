"""Sources of earlier trials: Optuna studies and MLflow experiments."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import optuna
from optuna.trial import FrozenTrial, TrialState

from tune_tf.errors import InvalidSettingsError, did_you_mean
from tune_tf.searchers.criteria import SearchCriteria
from tune_tf.searchers.space_record import constants_of
from tune_tf.searchers.storage.study_storage import (
    JOURNAL_SUFFIXES,
    is_journal,
    open_storage,
    quiet_logging,
    storage_label,
)

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

_PARENT = "mlflow.parentRunId"
_STATES = {"FINISHED": TrialState.COMPLETE, "KILLED": TrialState.PRUNED}


@dataclass(frozen=True)
class EarlierTrial:
    """Trial of an earlier sweep.

    Args:
        key: Its identifier in the source.
        state: Its Optuna state.
        params: Value by path: as Optuna stores it or, in text, as MLflow does.
        text: Whether the parameters are texts.
        values: The objectives' values; None for a trial that was stopped early.
        curve: The leading objective's values by iteration.
        violations: By how much each constraint is violated, by its text; None if unknown.
        constants: Values by path that are not Optuna parameters, as far as they are known.
    """

    key: str
    state: TrialState
    params: Mapping[str, Any]
    text: bool
    values: tuple[float, ...] | None
    curve: Mapping[int, float]
    violations: Mapping[str, float] | None
    constants: Mapping[str, Any] = field(default_factory=dict)


class TrialSource(Protocol):
    """Interface of a source of earlier trials."""

    def read(self, criteria: SearchCriteria) -> Iterator[EarlierTrial]:
        """Yield the finished trials.

        Raises:
            InvalidSettingsError: The source cannot be read, or has other objectives.
        """
        ...


@dataclass(frozen=True)
class StudySource:
    """Optuna study of an earlier sweep.

    Args:
        storage: A sweep's folder, a journal file or a database URL; with ``#name`` at the end if it
            contains several studies.
    """

    storage: str

    def read(self, criteria: SearchCriteria) -> Iterator[EarlierTrial]:
        """Yield the trials that are COMPLETE or PRUNED."""
        study = self._open()
        if study.directions != criteria.directions:
            found = " and ".join(each.name.lower() for each in study.directions)
            raise InvalidSettingsError(
                [
                    (
                        f"warm_start_from {self.storage!r}: its study has the directions {found}, "
                        f"not those of {criteria}; name a sweep with the same objective"
                    )
                ]
            )
        theirs = study.user_attrs.get(OBJECTIVE, str(criteria))
        if theirs != str(criteria):
            raise InvalidSettingsError(
                [
                    (
                        f"warm_start_from {self.storage!r}: its objective is {theirs}, this one's "
                        f"is {criteria}; name a sweep with the same objective"
                    )
                ]
            )
        constants = constants_of(study)
        for trial in study.get_trials(deepcopy=False):
            if trial.state in (TrialState.COMPLETE, TrialState.PRUNED):
                yield _from_study(trial, criteria, constants)

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
                            f"warm_start_from {self.storage!r}: name the study as {place}#name; "
                            f"available: {known}{did_you_mean(name, names)}"
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
                        f"warm_start_from {str(folder)!r}: expected one journal, found "
                        f"{len(journals)}; name the study's file or database URL instead"
                    )
                ]
            )
        return journals[0]


@dataclass(frozen=True)
class MLflowSource:
    """Trial runs of an MLflow experiment: those with a parent run.

    Args:
        experiment_name: Name of the experiment.
        tracking_uri: MLflow's tracking URI; None for that of MLflow's environment.
    """

    experiment_name: str
    tracking_uri: str | None = None

    def read(self, criteria: SearchCriteria) -> Iterator[EarlierTrial]:
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
            near = did_you_mean(self.experiment_name, names)
            raise self._unusable(f"there is no such experiment{near}")
        token = None
        while True:
            page = client.search_runs(
                [experiment.experiment_id], order_by=["attributes.start_time"], page_token=token
            )
            for run in page:
                if _PARENT in run.data.tags and run.info.status in _STATES:
                    yield _from_run(client, run, criteria)
            token = page.token
            if not token:
                return

    def _unusable(self, why: str) -> InvalidSettingsError:
        where = "" if self.tracking_uri is None else f" at {storage_label(self.tracking_uri)}"
        return InvalidSettingsError(
            [f"warm_start_from 'mlflow:{self.experiment_name}'{where} cannot be read: {why}"]
        )


OBJECTIVE = "objective"
"""User attribute of a study: its objectives as text, ``min loss, max accuracy``."""


def _from_study(
    trial: FrozenTrial, criteria: SearchCriteria, constants: Mapping[str, Any]
) -> EarlierTrial:
    violations = {str(each): trial.constraints.get(str(each)) for each in criteria.constraints}
    known = {key: value for key, value in violations.items() if value is not None}
    return EarlierTrial(
        key=str(trial.number),
        state=trial.state,
        params=trial.params,
        text=False,
        values=tuple(trial.values) if trial.state is TrialState.COMPLETE else None,
        curve=trial.intermediate_values,
        violations=known if len(known) == len(violations) else None,
        constants=constants,
    )


def _from_run(client: "MlflowClient", run: "Run", criteria: SearchCriteria) -> EarlierTrial:
    metrics = run.data.metrics
    state = _STATES[run.info.status]
    history = client.get_metric_history(run.info.run_id, criteria.leading.metric)
    known = all(each.metric in metrics for each in criteria.constraints)
    return EarlierTrial(
        key=run.info.run_id,
        state=state,
        params=run.data.params,
        text=True,
        values=criteria.values(metrics) if state is TrialState.COMPLETE else None,
        curve={point.step: point.value for point in history},
        violations=criteria.violations(metrics) if known else None,
    )
