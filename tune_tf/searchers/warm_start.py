"""Warm start: import of an earlier sweep's results into a study."""

import logging
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import optuna
from optuna.trial import TrialState

from tune_tf.errors import InvalidSettingsError, did_you_mean
from tune_tf.ranking import kept_result
from tune_tf.searchers.criteria import SearchCriteria
from tune_tf.searchers.earlier_trial import EarlierTrial, OutsideSpaceError, to_optuna_trial
from tune_tf.searchers.space_record import constants_of
from tune_tf.searchers.storage.study_storage import (
    JOURNAL_SUFFIXES,
    directions_text,
    open_storage,
    quiet_logging,
    storage_label,
)
from tune_tf.searchers.trial_attrs import WARM_START
from tune_tf.space import SearchSpace

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

_log = logging.getLogger(__name__)

OBJECTIVE: Final = "objective"
"""User attribute of a study: its objectives as text, ``min loss, max accuracy``."""

WARM_START_KEY: Final = "warm_start_key"
"""User attribute of an Optuna trial that was run elsewhere: what its source knows it by."""

_MLFLOW = "mlflow:"
_PARENT = "mlflow.parentRunId"
_STATES = {"FINISHED": TrialState.COMPLETE, "KILLED": TrialState.PRUNED}


@dataclass(frozen=True)
class WarmStart:
    """Source of earlier results for a warm start.

    Args:
        source: A sweep's folder; a study's journal file or database URL, with ``#name`` at the end
            if it contains several studies; or ``mlflow:<experiment name>``.
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
        return _read_study(text, criteria)


@dataclass(frozen=True)
class ImportSummary:
    """Number of trials imported from a source, and of those skipped, by reason."""

    source: str
    num_imported: int
    skipped: Mapping[str, int] = field(default_factory=dict)

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
    start: WarmStart,
    *,
    dense: bool = False,
) -> ImportSummary:
    """Add the earlier trials that a space contains to a study, once; log a summary.

    If ``dense``, the sampler needs values of inactive parameters; they are sampled.

    Raises:
        InvalidSettingsError: The source cannot be read, or has other objectives.
    """
    source = str(start.source)
    finished_imports = study.user_attrs.get(WARM_START, {})
    if record := finished_imports.get(source):
        return ImportSummary(source, **record)
    imported_keys = {
        trial.user_attrs.get(WARM_START_KEY)
        for trial in study.get_trials(deepcopy=False)
        if trial.user_attrs.get(WARM_START) == source
    }
    num_imported, skipped = len(imported_keys), Counter[str]()
    for earlier in start.read(criteria):
        if earlier.key in imported_keys:
            continue
        try:
            attributes = {WARM_START: source, WARM_START_KEY: earlier.key}
            seed = num_imported if dense else None
            study.add_trial(to_optuna_trial(earlier, space, criteria, attributes, dense_seed=seed))
            num_imported += 1
        except OutsideSpaceError as error:
            skipped[str(error)] += 1
    summary = ImportSummary(source, num_imported, dict(skipped))
    record = {"num_imported": num_imported, "skipped": dict(skipped)}
    study.set_user_attr(WARM_START, {**finished_imports, source: record})
    _log.info("%s", summary) if num_imported else _log.warning("%s", summary)
    return summary


def _read_study(source: str, criteria: SearchCriteria) -> Iterator[EarlierTrial]:
    """Yield the trials of a study that are COMPLETE or PRUNED."""
    study = _open_study(source)
    objective = study.user_attrs.get(OBJECTIVE, directions_text(study.directions))
    if study.directions != criteria.directions or objective not in (
        str(criteria),
        directions_text(criteria.directions),
    ):
        text = f"its objective is {objective}, this one's is {criteria}"
        raise _unusable(source, f"{text}; name a sweep with the same objective")
    constants = constants_of(study)
    for trial in study.get_trials(deepcopy=False):
        if trial.state in (TrialState.COMPLETE, TrialState.PRUNED):
            violations = {
                str(each): trial.constraints.get(str(each)) for each in criteria.constraints
            }
            reported = {key: value for key, value in violations.items() if value is not None}
            yield EarlierTrial(
                key=str(trial.number),
                state=trial.state,
                config=constants | trial.params,
                values=tuple(trial.values) if trial.state is TrialState.COMPLETE else None,
                curve=trial.intermediate_values,
                violations=reported if len(reported) == len(violations) else None,
            )


def _open_study(source: str) -> optuna.Study:
    """Open the study of a sweep's folder, a journal or a database, with ``#name`` if needed."""
    location, _, name = source.partition("#")
    if "://" not in location:
        path = Path(location)
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        journals = [each for each in files if each.suffix in JOURNAL_SUFFIXES and each.is_file()]
        if len(journals) != 1:
            kinds = "a sweep's folder, a journal file, a database URL or mlflow:<experiment>"
            held = f"it holds {len(journals)} journals, not one"
            held = held if path.exists() else "there is no such file or folder"
            raise _unusable(source, f"must be {kinds}; {held}")
        location = str(journals[0])
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
            if _PARENT in run.data.tags and run.info.status in _STATES:
                yield _from_run(client, run, criteria)
        token = page.token or ""


def _from_run(client: "MlflowClient", run: "Run", criteria: SearchCriteria) -> EarlierTrial:
    metrics = kept_result(run.data.metrics)
    state = _STATES[run.info.status]
    history = client.get_metric_history(run.info.run_id, criteria.leading.metric)
    all_reported = all(each.metric in metrics for each in criteria.constraints)
    return EarlierTrial(
        key=run.info.run_id,
        state=state,
        config=run.data.params,
        values=criteria.values(metrics) if state is TrialState.COMPLETE else None,
        curve={point.step: point.value for point in history},
        violations=criteria.violations(metrics) if all_reported else None,
    )
