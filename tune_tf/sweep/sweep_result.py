"""Result of a sweep, and its report and best model."""

import logging
from collections.abc import Sequence
from pathlib import Path

from ray.tune.experiment import Trial

from tune_tf.errors import UnknownMetricError
from tune_tf.events import EventHistory, EventLog
from tune_tf.inspection import SweepState, SweepView
from tune_tf.results import SweepResult
from tune_tf.sweep.model.best_model import log_best_model
from tune_tf.sweep.model.export_process import ModelExportProcess
from tune_tf.sweep.state.storage import SweepStorage
from tune_tf.sweep.stopper import SweepStopper
from tune_tf.sweep.trial_results import trial_result
from tune_tf.sweep_folder import SweepFolder
from tune_tf.tracking import MLflowCallback, OutcomeTracker
from tune_tf.tracking.writing.spool import SPOOL_FOLDER

_logger = logging.getLogger(__name__)


def sweep_result(
    folder: SweepFolder,
    storage: SweepStorage,
    trials: Sequence[Trial],
    outcome_tracker: OutcomeTracker,
    tracker: MLflowCallback | None,
    event_log: EventLog,
    end: SweepStopper,
    *,
    unasked: bool,
) -> SweepResult:
    """Collect the result of a sweep.

    ``end`` holds the reason of an early end; ``unasked`` says whether the sweep was interrupted
    before all trials were proposed.
    """
    config, pages = folder.config, event_log.history.trials
    results = (
        trial_result(
            trial,
            outcome_tracker.outcomes.get(trial.trial_id),
            config.constraints,
            config.objectives,
            storage,
            pages.get(trial.trial_id),
        )
        for trial in trials
    )
    return SweepResult(
        sweep_id=folder.sweep_id,
        path=folder.path,
        config=config,
        base_dir=folder.base_dir,
        trials=tuple(sorted(results, key=lambda result: result.number)),
        mlflow_run_id=tracker.parent_run_id if tracker else None,
        ended_early=end.reason,
        unasked=unasked,
    )


def settled_result(folder: SweepFolder) -> SweepResult | None:
    """Return the result of a finished sweep; None if a resume has work to do.

    Work is left if trials have not ended, settings were edited, or the report or the best model
    could not be written.

    Raises:
        InvalidSettingsError: The settings were edited and are invalid.
    """
    sessions = EventHistory.read(folder.path).sessions
    if not sessions or not sessions[-1].over or sessions[-1].left or folder.edited() is not None:
        return None
    view = SweepView.of(folder)
    if view.state is not SweepState.ENDED or view.result.interrupted:
        return None
    is_whole = view.result.report_path.is_file() and not (folder.path / SPOOL_FOLDER).exists()
    return view.result if is_whole else None


def record_result(
    result: SweepResult,
    folder: SweepFolder,
    tracker: MLflowCallback | None,
    writer: ModelExportProcess,
) -> list[str]:
    """Write the report and log the best model.

    Returns:
        Names of the parts that could not be written.
    """
    files = _write_report(result)
    left = [] if files else ["report"]
    settings = folder.config.mlflow
    if tracker is None or settings is None or folder.tracking_uri is None:
        return left
    if settings.log_best_model and not result.interrupted and _has_best(result):
        logged = log_best_model(
            result,
            settings,
            writer,
            tracking_uri=folder.tracking_uri,
            run_ids=tracker.run_ids(),
        )
        left += [] if logged else ["best model"]
    tracker.attach(files)
    return left


def _has_best(result: SweepResult) -> bool:
    try:
        return result.best_trial is not None
    except UnknownMetricError:
        return False


def _write_report(result: SweepResult) -> dict[str, Path]:
    """Write the report and return its files by artifact path; on failure none."""
    from tune_tf.report import write_report  # slow to import

    folder = result.report_path.parent
    try:
        for partial in folder.rglob(".*"):  # left by a killed driver
            partial.unlink()
        return write_report(result, folder)
    except OSError as error:
        _logger.warning("the report of %s could not be written: %s", result.sweep_id, error)
        return {}
