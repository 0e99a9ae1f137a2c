"""A sweep from its settings to its result: puts the parts together and calls ``tune.run``."""

import logging
from collections.abc import Sequence
from pathlib import Path

from ray import tune
from ray.tune.experiment import Trial
from ray.tune.logger import JsonLoggerCallback
from ray.tune.utils import flatten_dict

from tune_tf.config import SweepConfig
from tune_tf.diary import Diary
from tune_tf.folder import SweepFolder
from tune_tf.outcome import MLFLOW_RUN_ID
from tune_tf.results import SweepResult
from tune_tf.sweep.best_model import log_best_model
from tune_tf.sweep.cluster import TUNE_ENVIRONMENT, cluster, environment
from tune_tf.sweep.diarist import Diarist
from tune_tf.sweep.guards import KeepScheduler, RefuseBrokenWorkload, told_plainly
from tune_tf.sweep.model_writer import ModelWriter, StartEarly
from tune_tf.sweep.parts import (
    make_scheduler,
    make_searcher,
    make_tracker,
    make_trial_tracking,
)
from tune_tf.sweep.plan import SweepPlan, plan_sweep
from tune_tf.sweep.trial_results import trial_name, trial_result
from tune_tf.tracking import Endings, MLflowCallback
from tune_tf.tracking.endings import last_report
from tune_tf.trainables import trainable
from tune_tf.trainables.fewer_workers import fewer_workers
from tune_tf.trainables.input_waits import WatchInput
from tune_tf.trainables.oom_retries import OomRetries
from tune_tf.trainables.recycling import RecycleActors
from tune_tf.trainables.reservations import WatchReservations

_logger = logging.getLogger(__name__)


def run_sweep(
    config: SweepConfig,
    *,
    base_dir: str | Path | None = None,
    callbacks: Sequence[tune.Callback] = (),
) -> SweepResult:
    """Run a sweep to its end, or until Ctrl-C.

    Starts a Ray cluster on this machine, and ends it again, where none is connected; set
    ``RAY_ADDRESS`` or call ``ray.init`` first for another.

    Args:
        config: The sweep's settings.
        base_dir: What the workload's path is relative to; the working directory by default.
        callbacks: More Tune callbacks, called after the sweep's own.

    Returns:
        All trials and the best one; ``interrupted`` tells whether a resume would go on.

    Raises:
        TuneTfError: Before any trial starts, where something is wrong that can be known.
    """
    base_dir = Path(base_dir or Path.cwd())
    with cluster():
        plan = plan_sweep(config, base_dir=base_dir)
        folder = SweepFolder.create(config, base_dir)
        with Diary(folder.path) as diary:
            return _run(folder, plan, diary, resume=False, callbacks=callbacks)


def resume_sweep(
    path: str | Path,
    *,
    storage_path: str | Path = "sweeps",
    callbacks: Sequence[tune.Callback] = (),
) -> SweepResult:
    """Go on with a sweep that was interrupted or killed.

    Trials that have ended are not run again; those that were running go on from their last
    checkpoint.

    Args:
        path: The sweep's folder, its id, or its name for the latest sweep of that name.
        storage_path: Where sweeps are looked for by id or name.
        callbacks: More Tune callbacks, as many as at the start.

    Raises:
        UnknownSweepError: There is no such sweep.
        SweepConflictError: It is still running.
        TuneTfError: As for :func:`run_sweep`.
    """
    folder = SweepFolder.open(path, storage_path)
    with Diary(folder.path) as diary, cluster():
        plan = plan_sweep(folder.config, base_dir=folder.base_dir)
        return _run(folder, plan, diary, resume=folder.was_snapshot, callbacks=callbacks)


def _run(
    folder: SweepFolder,
    plan: SweepPlan,
    diary: Diary,
    *,
    resume: bool,
    callbacks: Sequence[tune.Callback],
) -> SweepResult:
    config = folder.config
    scheduler = make_scheduler(config, plan.mutations)
    searcher = make_searcher(folder)
    tracker = make_tracker(folder, scheduler, searcher)
    endings = tracker or Endings(config.leading_objective)
    own = [
        endings,
        KeepScheduler(scheduler),
        RecycleActors(),
        JsonLoggerCallback(),
        RefuseBrokenWorkload(),
        *fewer_workers(config.parallelism),
        OomRetries(
            plan.workload, config.parallelism, loop=config.loop, oom_retries=config.oom_retries
        ),
        WatchReservations(config.parallelism.shares(plan.resources)[0]),
        WatchInput(),
        Diarist(diary, endings, tracker),
    ]
    with ModelWriter() as writer, environment(TUNE_ENVIRONMENT), told_plainly(folder):
        if tracker and config.mlflow and config.mlflow.log_best_model:
            early = [StartEarly(writer, config.budget)]
        else:
            early = []
        analysis = tune.run(
            trainable(
                plan.workload,
                config.parallelism,
                resources=plan.resources,
                loop=config.loop,
                validation=config.validation,
                seed=config.seed,
                checkpoint_interval_s=config.checkpoint_interval_s,
                tracking=make_trial_tracking(folder),
                log_folder=folder.path,
                elastic=scheduler.fresh_actors,  # those that resize trials need them
            ),
            name=folder.sweep_id,
            storage_path=str(folder.path.parent),
            num_samples=config.budget.num_samples,
            time_budget_s=config.budget.time_budget_s,
            search_alg=searcher,
            scheduler=scheduler,
            max_concurrent_trials=plan.max_concurrent_trials,
            max_failures=config.max_failures,
            reuse_actors=config.reuse_actors and not scheduler.fresh_actors,
            checkpoint_config=tune.CheckpointConfig(
                checkpoint_at_end=True, num_to_keep=scheduler.num_to_keep
            ),
            # Tune gives the callbacks their states back by their places.
            callbacks=[*own, *callbacks, *early],
            resume_config=tune.ResumeConfig() if resume else None,
            resume=True if resume else None,
            trial_name_creator=trial_name,
            trial_dirname_creator=trial_name,
            raise_on_failed_trial=False,
            verbose=0,
        )
        run_ids = tracker.run_ids() if tracker else {}
        last = {
            trial.trial_id: {
                **flatten_dict(last_report(trial)),
                MLFLOW_RUN_ID: run_ids.get(trial.trial_id),
            }
            for trial in analysis.trials
        }
        searcher.finish(endings.outcomes, last)
        result = _result(folder, analysis.trials, endings, tracker)
        _finish(result, folder, tracker, writer)
        diary.over(interrupted=result.interrupted, run_ids=run_ids)
    return result


def _result(
    folder: SweepFolder,
    trials: Sequence[Trial],
    endings: Endings,
    tracker: MLflowCallback | None,
) -> SweepResult:
    config = folder.config
    results = (
        trial_result(
            trial, endings.outcomes.get(trial.trial_id), config.constraints, config.objectives
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
    )


def _finish(
    result: SweepResult, folder: SweepFolder, tracker: MLflowCallback | None, writer: ModelWriter
) -> None:
    """Write down what is known of a sweep only once its trials have ended."""
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
