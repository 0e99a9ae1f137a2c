"""Warm start: import of an earlier sweep's results into a study."""

import logging
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import optuna
from optuna.trial import TrialState

from tune_tf.errors import InvalidSettingsError, did_you_mean
from tune_tf.ranking import kept_result
from tune_tf.record import RECORD, SweepHistory, recorded_results
from tune_tf.searchers.criteria import SearchCriteria
from tune_tf.searchers.earlier_trial import EarlierTrial, OutsideSpaceError, to_optuna_trial
from tune_tf.searchers.replay import ReplayedTrial
from tune_tf.searchers.study_storage import (
    has_objectives,
    objective_text,
    open_storage,
    quiet_logging,
    storage_label,
)
from tune_tf.searchers.trial_attrs import WARM_START
from tune_tf.space import SearchSpace, flatten

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

_log = logging.getLogger(__name__)

_MLFLOW = "mlflow:"
_PARENT = "mlflow.parentRunId"
_COMPLETED, _STOPPED = "FINISHED", "KILLED"


@dataclass(frozen=True)
class WarmStart:
    """Source of earlier results for a warm start.

    Args:
        source: A sweep's folder; the database URL or journal file of a study, with ``#name`` at
            the end if it has several; or ``mlflow:<experiment name>``.
        tracking_uri: MLflow's tracking URI; None for that of MLflow's environment.

    Raises:
        InvalidSettingsError: The source is none of these, or a tracking URI is given without an
            experiment.
    """

    source: str | os.PathLike[str]
    tracking_uri: str | None = None

    def __post_init__(self) -> None:
        """Validate the source."""
        error = None
        if not isinstance(self.source, str | os.PathLike) or not str(self.source):
            error = f"warm_start_from must be a path or string, not {self.source!r}"
        elif str(self.source) == _MLFLOW:
            error = "warm_start_from 'mlflow:' names no experiment: use mlflow:<name>"
        if error:
            raise InvalidSettingsError(error)
        object.__setattr__(self, "source", os.fspath(self.source))

    def read(self, criteria: SearchCriteria) -> Iterator[EarlierTrial]:
        """Yield the finished trials.

        Raises:
            InvalidSettingsError: The source cannot be read, or has other objectives.
        """
        text = str(self.source)
        if text.startswith(_MLFLOW):
            return _read_experiment(text.removeprefix(_MLFLOW), self.tracking_uri, criteria)
        if "://" in text or Path(text.partition("#")[0]).is_file():
            return _read_study(text, criteria)
        if (Path(text) / RECORD).is_file():
            return _read_record(Path(text), criteria)
        found = "there is no record of a sweep in it" if Path(text).is_dir() else "there is none"
        kinds = "a sweep's folder, a journal file, a database URL or mlflow:<experiment>"
        raise _unusable(text, f"must be {kinds}; {found}")


@dataclass(frozen=True)
class ImportSummary:
    """Number of trials imported from a source, and of those skipped, by reason.

    ``trials`` are the imported ones, unless the study had them.
    """

    source: str
    num_imported: int
    skipped: Mapping[str, int] = field(default_factory=dict)
    trials: tuple[EarlierTrial, ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        """Return ``12 earlier trials imported from PATH; 3 skipped: 3 because ...``."""
        text = f"{self.num_imported} earlier trials imported from {self.source}"
        if not self.skipped:
            return text
        reasons = ", ".join(f"{count} because {why}" for why, count in self.skipped.items())
        return f"{text}; {sum(self.skipped.values())} skipped: {reasons}"


def import_trials(
    study: optuna.Study,
    space: SearchSpace,
    criteria: SearchCriteria,
    earlier: Iterable[EarlierTrial],
    source: str,
    *,
    dense: bool = False,
) -> ImportSummary:
    """Add the earlier trials that a space contains to a study, once; log a summary.

    If ``dense``, the sampler needs values of inactive parameters; they are sampled.

    Raises:
        InvalidSettingsError: Their source cannot be read, or has other objectives.
    """
    known = study.get_trials(deepcopy=False)
    if num_known := sum(WARM_START in trial.user_attrs for trial in known):
        return ImportSummary(source, num_known)
    imported, skipped = list[EarlierTrial](), Counter[str]()
    for trial in earlier:
        try:
            seed = len(imported) if dense else None
            study.add_trial(to_optuna_trial(trial, space, criteria, dense_seed=seed))
            imported.append(trial)
        except OutsideSpaceError as error:
            skipped[str(error)] += 1
    summary = ImportSummary(source, len(imported), dict(skipped), tuple(imported))
    _log.info("%s", summary) if imported else _log.warning("%s", summary)
    return summary


def _read_record(folder: Path, criteria: SearchCriteria) -> Iterator[EarlierTrial]:
    """Yield the trials of a sweep that were completed or stopped early."""
    for trial in SweepHistory.read(folder).trials.values():
        replayed = ReplayedTrial(
            trial.trial_id,
            trial.suggested,
            trial.outcome,
            trial.cause,
            recorded_results(folder, trial.number) if trial.outcome else (),
        )
        if trial.outcome is None or not replayed.ended:
            continue
        progress = replayed.progress(criteria)
        end = progress.end(trial.outcome, trial.cause, criteria)
        last = kept_result(progress.last)
        if end.state is not TrialState.FAIL:
            yield EarlierTrial(
                source=str(folder),
                key=str(trial.number),
                completed=end.state is TrialState.COMPLETE,
                config=flatten(trial.suggested),
                values=tuple(end.values) if end.values else None,
                curve=progress.curve,
                violations=end.violations if criteria.has_constraints(last) else None,
            )


def _read_study(source: str, criteria: SearchCriteria) -> Iterator[EarlierTrial]:
    """Yield the trials of a study that are COMPLETE or PRUNED."""
    study = _open_study(source)
    if not has_objectives(study, criteria):
        text = f"its objective is {objective_text(study)}, this one's is {criteria}"
        raise _unusable(source, f"{text}; name a study with the same objective")
    for trial in study.get_trials(deepcopy=False):
        if trial.state in (TrialState.COMPLETE, TrialState.PRUNED):
            wanted = [str(each) for each in criteria.constraints]
            known = {key: trial.constraints[key] for key in wanted if key in trial.constraints}
            yield EarlierTrial(
                source=source,
                key=str(trial.number),
                completed=trial.state is TrialState.COMPLETE,
                config=trial.params,
                values=tuple(trial.values) if trial.state is TrialState.COMPLETE else None,
                curve=trial.intermediate_values,
                violations=known if len(known) == len(wanted) else None,
            )


def _open_study(source: str) -> optuna.Study:
    """Open the study of a journal or a database, with ``#name`` if there are several."""
    location, _, name = source.partition("#")
    storage = open_storage(location)
    with quiet_logging():
        names = optuna.get_all_study_names(storage)
        if not name and len(names) == 1:
            [name] = names
        if name not in names:
            available = ", ".join(repr(each) for each in sorted(names)) or "none"
            raise _unusable(
                source,
                f"name the study as {location}#name; available: {available}"
                f"{did_you_mean(name, names)}",
            )
        return optuna.load_study(study_name=name, storage=storage)


def _unusable(source: str, why: str) -> InvalidSettingsError:
    return InvalidSettingsError(f"warm_start_from {source!r}: {why}")


def _read_experiment(
    name: str, tracking_uri: str | None, criteria: SearchCriteria
) -> Iterator[EarlierTrial]:
    """Yield the runs of an MLflow experiment with a parent that finished or were stopped early."""
    from mlflow import MlflowClient  # late: it takes seconds
    from mlflow.exceptions import MlflowException

    where = "" if tracking_uri is None else f" at {storage_label(tracking_uri)}"
    unusable = f"warm_start_from 'mlflow:{name}'{where} cannot be read: "
    try:
        client = MlflowClient(tracking_uri=tracking_uri)
        experiment = client.get_experiment_by_name(name)
        names = [each.name for each in client.search_experiments()] if not experiment else []
    except MlflowException as error:
        reason = str(error).partition("\n")[0]
        raise InvalidSettingsError(unusable + reason) from error
    if experiment is None:
        reason = f"there is no such experiment{did_you_mean(name, names)}"
        raise InvalidSettingsError(unusable + reason)
    token = None
    while token != "":
        page = client.search_runs(
            [experiment.experiment_id], order_by=["attributes.start_time"], page_token=token
        )
        for run in page:
            if _PARENT in run.data.tags and run.info.status in (_COMPLETED, _STOPPED):
                yield _from_run(client, run, criteria, f"{_MLFLOW}{name}")
        token = page.token or ""


def _from_run(
    client: "MlflowClient", run: "Run", criteria: SearchCriteria, source: str
) -> EarlierTrial:
    metrics = kept_result(run.data.metrics)
    completed = run.info.status == _COMPLETED
    history = client.get_metric_history(run.info.run_id, criteria.leading.metric)
    return EarlierTrial(
        source=source,
        key=run.info.run_id,
        completed=completed,
        config=run.data.params,
        values=criteria.values(metrics) if completed else None,
        curve={point.step: point.value for point in history},
        violations=criteria.violations(metrics) if criteria.has_constraints(metrics) else None,
    )
