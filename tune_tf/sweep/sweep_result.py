"""Result of a sweep, its report and best model."""

import logging
from collections.abc import Mapping
from dataclasses import replace

from tune_tf.inspection import SweepState, SweepView
from tune_tf.record import RecordedTrial, SweepHistory
from tune_tf.results import SweepResult, TrialResult
from tune_tf.sweep.mlflow_store import BEST_MODEL
from tune_tf.sweep.model.best_model import evaluate_best, log_best_model
from tune_tf.sweep.model.export_process import ModelExportProcess
from tune_tf.sweep.parts import SweepParts
from tune_tf.sweep_folder import SweepFolder
from tune_tf.tracking.tags import PARENT

_log = logging.getLogger(__name__)


def sweep_result(parts: SweepParts, *, search_finished: bool) -> SweepResult:
    """Return the result of a sweep; ``search_finished`` says whether all trials were proposed."""
    return replace(
        SweepView.of(parts.folder).result,
        mlflow_run_id=parts.view.run_id_of(PARENT) if parts.view else None,
        ended_early=parts.stopper.reason,
        search_finished=search_finished,
        fingerprint=parts.scheduler.fingerprint if parts.folder.config.reproducible else None,
    )


def finished_result(folder: SweepFolder) -> SweepResult | None:
    """Return the result of a finished sweep; None if a resume has work to do.

    That is if trials have not ended, settings were edited, or an output could not be written.
    """
    sessions = SweepHistory.read(folder.path).sessions
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
    return view.result if view.result.report_path.is_file() else None


def record_result(
    result: SweepResult, parts: SweepParts, export_process: ModelExportProcess
) -> tuple[SweepResult, list[str]]:
    """Log the best model, evaluate it on the test rows, and write the report.

    Returns:
        The result with the test metrics, and the names of missing outputs.
    """
    result, missing = _record_best(result, parts, export_process)
    return result, [*([] if _write_report(result) else ["report"]), *missing]


def _record_best(
    result: SweepResult, parts: SweepParts, export_process: ModelExportProcess
) -> tuple[SweepResult, list[str]]:
    """Log the best model, and evaluate it on the test rows; return as :func:`record_result`."""
    folder, view = parts.folder, parts.view
    settings = folder.config.mlflow
    if (
        view is None
        or settings is None
        or not settings.log_best_model
        or result.interrupted
        or not result.best_if_any
    ):
        return result, []
    logged = log_best_model(
        result,
        settings,
        export_process,
        tracking_uri=folder.tracking_uri or "",
        run_ids=view.trial_run_ids,
    )
    evaluate_best(result, export_process, parts.record)
    recorded = parts.record.history.trials
    tested = replace(result, trials=tuple(_with_test(it, recorded) for it in result.trials))
    return tested, [] if logged else [BEST_MODEL]


def _with_test(trial: TrialResult, recorded: Mapping[str, RecordedTrial]) -> TrialResult:
    known = recorded.get(trial.trial_id)
    return replace(trial, test_metrics=known.test_metrics) if known else trial


def _write_report(result: SweepResult) -> bool:
    """Write the report; return whether it could be written."""
    from tune_tf.report import write_report  # slow to import

    folder = result.report_path.parent
    try:
        for partial in folder.rglob(".*"):  # left by a killed driver
            partial.unlink()
        write_report(result, folder)
    except OSError as error:
        _log.warning("the report of %s could not be written: %s", result.sweep_id, error)
        return False
    return True
