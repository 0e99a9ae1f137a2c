"""What a sweep has found, and what is written down of it at its end."""

import logging
from collections.abc import Sequence
from pathlib import Path

from ray.tune.experiment import Trial

from tune_tf.diary import Diary
from tune_tf.folder import SweepFolder
from tune_tf.results import SweepResult
from tune_tf.sweep.best_model import log_best_model
from tune_tf.sweep.model_writer import ModelWriter
from tune_tf.sweep.storage import SweepStorage
from tune_tf.sweep.sweep_end import SweepEnd
from tune_tf.sweep.trial_results import trial_result
from tune_tf.tracking import Endings, MLflowCallback

_logger = logging.getLogger(__name__)


def sweep_result(
    folder: SweepFolder,
    storage: SweepStorage,
    trials: Sequence[Trial],
    endings: Endings,
    tracker: MLflowCallback | None,
    diary: Diary,
    end: SweepEnd,
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
    """
    config, pages = folder.config, diary.pages.trials
    results = (
        trial_result(
            trial,
            endings.outcomes.get(trial.trial_id),
            config.constraints,
            config.objectives,
            storage,
            checkpoints_removed=trial.trial_id in pages
            and pages[trial.trial_id].checkpoints_removed,
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
    )


def record(
    result: SweepResult, folder: SweepFolder, tracker: MLflowCallback | None, writer: ModelWriter
) -> None:
    """Write down what is known of a sweep only once its trials have ended: report and best model.

    Args:
        result: What it found.
        folder: Its folder.
        tracker: Who writes to MLflow; None where nothing is tracked.
        writer: Who makes files of the best model.
    """
    files = _reported(result)
    settings = folder.config.mlflow
    if tracker is None or settings is None or folder.tracking_uri is None:
        return
    if settings.log_best_model and not result.interrupted:
        log_best_model(
            result,
            settings,
            writer,
            tracking_uri=folder.tracking_uri,
            run_ids=tracker.run_ids(),
        )
    tracker.attach(files)


def _reported(result: SweepResult) -> dict[str, Path]:
    """Write the report; return its files by artifact path, none if there is no room for them."""
    from tune_tf.report import write_report  # it draws with what is slow to import

    try:
        return write_report(result, result.report_path.parent)
    except OSError as error:
        _logger.warning("The report of %s could not be written: %s", result.sweep_id, error)
        return {}
