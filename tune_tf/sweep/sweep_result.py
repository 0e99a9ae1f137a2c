"""Result of a sweep, its report and best model, and its actuals beside the forecast."""

import logging
import time
from collections.abc import Sequence
from pathlib import Path

from ray.tune.experiment import Trial

from tune_tf.constraint import is_feasible
from tune_tf.events import EventHistory, TrialEvents
from tune_tf.forecast import (
    Actuals,
    ForecastWithActuals,
    read_actuals,
    read_forecast,
    write_actuals,
)
from tune_tf.inspection import SweepState, SweepView
from tune_tf.ranking import kept_iteration, kept_result
from tune_tf.results import SweepResult, TrialResult, kept_metrics
from tune_tf.sweep.callbacks.recorders import trial_cause
from tune_tf.sweep.model.best_model import log_best_model
from tune_tf.sweep.model.export_process import ModelExportProcess
from tune_tf.sweep.parts import SweepParts
from tune_tf.sweep_folder import SweepFolder
from tune_tf.tracking import MLflowCallback
from tune_tf.tracking.descriptions import trial_number
from tune_tf.tracking.writing.spool import SPOOL_FOLDER
from tune_tf.tune_internals.trial_state import latest_result

_log = logging.getLogger(__name__)


def sweep_result(
    parts: SweepParts, trials: Sequence[Trial], *, search_finished: bool
) -> SweepResult:
    """Return the result of a sweep; ``search_finished`` says whether all trials were proposed."""
    folder, events = parts.folder, parts.event_log.history.trials
    results = (_trial_result(trial, parts, events.get(trial.trial_id)) for trial in trials)
    return SweepResult(
        sweep_id=folder.sweep_id,
        path=folder.path,
        config=folder.config,
        base_dir=folder.base_dir,
        trials=tuple(sorted(results, key=lambda result: result.number)),
        mlflow_run_id=parts.tracker.parent_run_id if parts.tracker else None,
        ended_early=parts.stopper.reason,
        search_finished=search_finished,
    )


def _trial_result(trial: Trial, parts: SweepParts, events: TrialEvents | None) -> TrialResult:
    """Return the result of a trial.

    Its events know removed checkpoints that Tune still lists, and causes of earlier sessions.
    """
    config, last = parts.folder.config, latest_result(trial)
    kept = kept_result(last)
    are_removed = events is not None and events.checkpoints_removed
    checkpoint = None if are_removed else trial.checkpoint
    return TrialResult(
        trial_id=trial.trial_id,
        number=trial_number(trial),
        config=trial.config,
        outcome=parts.outcome_tracker.outcomes.get(trial.trial_id),
        cause=trial_cause(trial) or (events.cause if events else None),
        iterations=int(last.get("training_iteration", 0)),
        metrics=kept_metrics(kept, config.constraints, config.objectives),
        checkpoint=parts.recovery.storage.location(checkpoint.path) if checkpoint else None,
        feasible=is_feasible(config.constraints, kept),
        checkpoints_removed=are_removed,
        kept_iteration=kept_iteration(last),
    )


def copy_forecast(folder: SweepFolder) -> None:
    """Copy the forecast of the sweep's settings, if any, into its folder."""
    forecast = read_forecast(folder.config)
    if forecast is not None:
        write_actuals(folder.path, ForecastWithActuals(forecast, None))


def record_actuals(result: SweepResult, begun_s: float, *, closed: bool) -> None:
    """Write the actuals of a sweep that has a forecast, for a session that began at ``begun_s``.

    ``closed`` says whether the report and the best model have been written.
    """
    saved = read_actuals(result.path)
    if saved is None:
        return
    earlier = EventHistory.read(result.path).sessions[:-1]
    worked_s = sum(session.last_s - session.begun_s for session in earlier)
    actuals = Actuals.of(result, worked_s + time.time() - begun_s, closed=closed)
    try:
        write_actuals(result.path, ForecastWithActuals(saved.forecast, actuals))
    except OSError as error:
        _log.warning("the actuals of %s could not be written: %s", result.sweep_id, error)


def finished_result(folder: SweepFolder) -> SweepResult | None:
    """Return the result of a finished sweep; None if a resume has work to do.

    That is if trials have not ended, settings were edited, or an output could not be written.
    """
    sessions = EventHistory.read(folder.path).sessions
    if (
        not sessions
        or not sessions[-1].ended_cleanly
        or sessions[-1].missing_outputs
        or folder.edited() is not None
    ):
        return None
    view = SweepView.of(folder)
    if view.state is not SweepState.ENDED or view.result.interrupted:
        return None
    is_complete = view.result.report_path.is_file() and not (folder.path / SPOOL_FOLDER).exists()
    return view.result if is_complete else None


def record_result(
    result: SweepResult,
    folder: SweepFolder,
    tracker: MLflowCallback | None,
    export_process: ModelExportProcess,
) -> list[str]:
    """Write the report and log the best model; return the names of missing outputs."""
    files = _write_report(result)
    missing = [] if files else ["report"]
    settings = folder.config.mlflow
    if tracker is None or settings is None or folder.tracking_uri is None:
        return missing
    if settings.log_best_model and not result.interrupted and result.best_if_any:
        logged = log_best_model(
            result,
            settings,
            export_process,
            tracking_uri=folder.tracking_uri,
            run_ids=tracker.run_ids(),
        )
        missing += [] if logged else ["best model"]
    tracker.attach(files)
    return missing


def _write_report(result: SweepResult) -> dict[str, Path]:
    """Write the report and return its files by artifact path; on failure none."""
    from tune_tf.report import write_report  # slow to import

    folder = result.report_path.parent
    try:
        for partial in folder.rglob(".*"):  # left by a killed driver
            partial.unlink()
        return write_report(result, folder)
    except OSError as error:
        _log.warning("the report of %s could not be written: %s", result.sweep_id, error)
        return {}
