"""Execution of a sweep by ``tune.run``."""

from collections.abc import Sequence

from ray import tune

from tune_tf.config import SweepConfig
from tune_tf.events import ControlChannel, EventLog
from tune_tf.results import SweepResult
from tune_tf.searchers.gated_search import GatedSearcher
from tune_tf.sweep.builders import (
    make_scheduler,
    make_searcher,
    make_tracker,
    make_trial_tracking,
)
from tune_tf.sweep.callbacks import SweepParts, sweep_callbacks
from tune_tf.sweep.callbacks.checkpoint_retention import CheckpointRetention
from tune_tf.sweep.callbacks.control import ControlRequests
from tune_tf.sweep.callbacks.disk_guard import DiskGuard
from tune_tf.sweep.callbacks.forecast_actuals import ForecastActuals
from tune_tf.sweep.callbacks.guards import clear_errors
from tune_tf.sweep.callbacks.state_saver import StateSaver
from tune_tf.sweep.cluster import TUNE_ENVIRONMENT, environment, session_folder
from tune_tf.sweep.model.export_process import ModelExportProcess
from tune_tf.sweep.plan import SweepPlan
from tune_tf.sweep.search import SweepSearch
from tune_tf.sweep.state.recovery import Recovery
from tune_tf.sweep.state.snapshots import Snapshots
from tune_tf.sweep.stopper import SweepStopper, Target
from tune_tf.sweep.sweep_result import record_result, sweep_result
from tune_tf.sweep.trial_results import trial_name
from tune_tf.sweep_folder import SweepFolder
from tune_tf.tracking import OutcomeTracker
from tune_tf.trainables import trainable


def run_trials(
    folder: SweepFolder,
    plan: SweepPlan,
    event_log: EventLog,
    actuals: ForecastActuals,
    recovery: Recovery,
    callbacks: Sequence[tune.Callback],
) -> SweepResult:
    """Run a sweep until it ends or is interrupted.

    This process holds the lock of ``event_log``. ``callbacks`` are called after the sweep's own.
    """
    parts = _make_parts(folder, plan, event_log, recovery)
    tracker = parts.tracker
    search = SweepSearch(
        GatedSearcher(parts.searcher, parts.disk_guard),
        folder.config.budget,
        plan.max_concurrent_trials,
    )
    with (
        ModelExportProcess() as export_process,
        environment(TUNE_ENVIRONMENT),
        clear_errors(folder),
        parts.state_saver.require_restore(),
    ):
        analysis = _run_tune(parts, search, [*sweep_callbacks(parts, export_process), *callbacks])
        parts.retention.remove_unneeded()
        result = sweep_result(
            folder,
            recovery.storage,
            analysis.trials,
            parts.outcome_tracker,
            tracker,
            event_log,
            parts.stopper,
            unasked=not search.is_finished(),
        )
        actuals.write(result, closed=False)
        left = record_result(result, folder, tracker, export_process)
        actuals.write(result, closed=True)
        event_log.record_session_end(
            interrupted=result.interrupted,
            run_ids=tracker.run_ids() if tracker else {},
            ended_early=result.ended_early,
            left=left,
        )
    return result


def _make_parts(
    folder: SweepFolder, plan: SweepPlan, event_log: EventLog, recovery: Recovery
) -> SweepParts:
    config = folder.config
    scheduler = make_scheduler(config, plan.mutations)
    searcher = make_searcher(folder)
    tracker = make_tracker(folder, scheduler, searcher)
    outcome_tracker = (
        tracker.outcome_tracker if tracker else OutcomeTracker(config.leading_objective)
    )
    outcome_tracker.restore_outcomes(recovery.ended, recovery.begun)
    snapshots = Snapshots(folder.path, recovery.snapshot)
    retention = CheckpointRetention(
        config,
        recovery.storage,
        snapshots,
        scheduler,
        outcome_tracker,
        event_log.record_checkpoint_removal,
    )
    stopper = SweepStopper(folder.sweep_id, _target(config))
    ControlRequests(ControlChannel(folder.path), stopper)
    disk_guard = DiskGuard(
        config.min_free_disk,
        [folder.path, *filter(None, [session_folder()])],
        on_pause=event_log.record_suspension,
        on_resume=event_log.record_resumption,
    )
    return SweepParts(
        folder=folder,
        plan=plan,
        event_log=event_log,
        recovery=recovery,
        scheduler=scheduler,
        searcher=searcher,
        tracker=tracker,
        outcome_tracker=outcome_tracker,
        stopper=stopper,
        retention=retention,
        state_saver=StateSaver(snapshots, recovery.trial_ids, retention.current_needs),
        disk_guard=disk_guard,
    )


def _run_tune(
    parts: SweepParts, search: SweepSearch, callbacks: Sequence[tune.Callback]
) -> tune.ExperimentAnalysis:
    folder, plan, scheduler = parts.folder, parts.plan, parts.scheduler
    config = folder.config
    resumes = parts.recovery.resumes
    return tune.run(
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
            elastic=scheduler.fresh_actors,  # resizing schedulers need them
        ),
        name=folder.sweep_id,
        storage_path=config.remote_storage or str(folder.path.parent),
        num_samples=config.budget.num_samples,
        stop=parts.stopper,
        search_alg=search,
        scheduler=scheduler,
        max_failures=config.max_failures,
        reuse_actors=config.reuse_actors and not scheduler.fresh_actors,
        checkpoint_config=tune.CheckpointConfig(
            checkpoint_at_end=True, num_to_keep=scheduler.num_to_keep
        ),
        callbacks=callbacks,
        resume_config=tune.ResumeConfig() if resumes else None,
        resume=True if resumes else None,
        trial_name_creator=trial_name,
        trial_dirname_creator=trial_name,
        raise_on_failed_trial=False,
        verbose=0,
        progress_reporter=tune.CLIReporter(),  # the notebook reporter clears the cell's output
    )


def _target(config: SweepConfig) -> Target | None:
    if config.budget.target is None:
        return None
    return Target(config.leading_objective, config.budget.target, config.constraints)
