"""What a sweep has found, and what is written down of it at its end."""

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
from tune_tf.tracking.writing.spool import SPOOL

_logger = logging.getLogger(__name__)


def sweep_result(
    folder: SweepFolder,
    storage: SweepStorage,
    trials: Sequence[Trial],
    endings: OutcomeTracker,
    tracker: MLflowCallback | None,
    diary: EventLog,
    end: SweepStopper,
    *,
    unasked: bool,
) -> SweepResult:
    """Return what a sweep has found.

    Args:
        folder: Its folder.
        storage: Where its checkpoints are.
        trials: Tune's trials.
        endings: How they ended.
        tracker: Knows MLflow's id of the sweep's run; None where nothing is tracked.
        diary: What became of them.
        end: Why it ended early, if it did.
        unasked: Whether it was interrupted before all its trials had been proposed.
    """
    config, pages = folder.config, diary.pages.trials
    results = (
        trial_result(
            trial,
            endings.outcomes.get(trial.trial_id),
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
    """Return what a sweep has found that has come to its end; None if a resume has work to do.

    A resume goes on with trials that are left, with settings that were edited, and with what could
    not be written down at the end.

    Args:
        folder: The sweep's folder.

    Raises:
        InvalidSettingsError: Its settings were edited, and are wrong.
    """
    sessions = EventHistory.of(folder.path).sessions
    if not sessions or not sessions[-1].over or sessions[-1].left or folder.edited() is not None:
        return None
    view = SweepView.of(folder)
    if view.state is not SweepState.ENDED or view.result.interrupted:
        return None
    is_whole = view.result.report_path.is_file() and not (folder.path / SPOOL).exists()
    return view.result if is_whole else None


def record_result(
    result: SweepResult,
    folder: SweepFolder,
    tracker: MLflowCallback | None,
    writer: ModelExportProcess,
) -> list[str]:
    """Write down what is known of a sweep only once its trials have ended: report and best model.

    Args:
        result: What it found.
        folder: Its folder.
        tracker: Who writes to MLflow; None where nothing is tracked.
        writer: Who makes files of the best model.

    Returns:
        What could not be written down.
    """
    files = _reported(result)
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


def _reported(result: SweepResult) -> dict[str, Path]:
    """Write the report; return its files by artifact path, none if there is no room for them."""
    from tune_tf.report import write_report  # it draws with what is slow to import

    folder = result.report_path.parent
    try:
        for partial in folder.rglob(".*"):  # of a driver that was killed meanwhile
            partial.unlink()
        return write_report(result, folder)
    except OSError as error:
        _logger.warning("The report of %s could not be written: %s", result.sweep_id, error)
        return {}
