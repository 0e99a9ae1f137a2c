"""Drives a sweep: puts its parts together and calls ``tune.run``."""

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
from tune_tf.sweep.callbacks.budget_limit import BudgetLimit
from tune_tf.sweep.callbacks.checkpoint_retention import CheckpointRetention
from tune_tf.sweep.callbacks.control import ControlRequests
from tune_tf.sweep.callbacks.disk_guard import DiskGuard
from tune_tf.sweep.callbacks.event_recorder import EventRecorder
from tune_tf.sweep.callbacks.forecast_actuals import ForecastActuals
from tune_tf.sweep.callbacks.guards import BrokenWorkloadCheck, SchedulerCheck, clear_errors
from tune_tf.sweep.callbacks.result_files import ResultFiles
from tune_tf.sweep.callbacks.state_saver import StateSaver
from tune_tf.sweep.cluster import TUNE_ENVIRONMENT, environment, session_folder
from tune_tf.sweep.model.export_process import ModelExportProcess, StartEarly
from tune_tf.sweep.plan import SweepPlan
from tune_tf.sweep.search import StudyEnd, SweepSearch
from tune_tf.sweep.state.recovery import Recovery
from tune_tf.sweep.state.snapshots import Snapshots
from tune_tf.sweep.stopper import SweepStopper, Target
from tune_tf.sweep.sweep_result import record_result, sweep_result
from tune_tf.sweep.trial_results import trial_name
from tune_tf.sweep_folder import SweepFolder
from tune_tf.tracking import OutcomeTracker
from tune_tf.trainables import trainable
from tune_tf.trainables.input_waits import WatchInput
from tune_tf.trainables.memory.oom_retries import OomRetries
from tune_tf.trainables.memory.recycling import RecycleActors
from tune_tf.trainables.multi_process.fewer_workers import fewer_workers
from tune_tf.trainables.reservations import WatchReservations
from tune_tf.tune_internals.trimmed_trials import TrimTrials


def run_trials(
    folder: SweepFolder,
    plan: SweepPlan,
    diary: EventLog,
    reckoning: ForecastActuals,
    recovery: Recovery,
    callbacks: Sequence[tune.Callback],
) -> SweepResult:
    """Drive a sweep until it ends or is interrupted.

    Args:
        folder: The sweep's folder.
        plan: What it does.
        diary: Its diary, held by this process.
        reckoning: When this session of it began.
        recovery: What it goes on from.
        callbacks: More Tune callbacks, called after the sweep's own.
    """
    config = folder.config
    scheduler = make_scheduler(config, plan.mutations)
    searcher = make_searcher(folder)
    tracker = make_tracker(folder, scheduler, searcher)
    endings = tracker or OutcomeTracker(config.leading_objective)
    endings.goes_on(recovery.ended, recovery.begun)
    snapshots = Snapshots(folder.path, recovery.snapshot)
    keeper = CheckpointRetention(
        config, recovery.storage, snapshots, scheduler, endings, diary.removed_checkpoints
    )
    keep = StateSaver(snapshots, recovery.trial_ids, keeper.moment)
    end = SweepStopper(folder.sweep_id, _target(config))
    ControlRequests(ControlChannel(folder.path), end)
    own = [
        BudgetLimit(config, end, endings),
        endings,
        SchedulerCheck(scheduler),
        RecycleActors(),
        ResultFiles(folder.path, recovery.storage),
        BrokenWorkloadCheck(),
        *fewer_workers(config.parallelism),
        OomRetries(
            plan.workload, config.parallelism, loop=config.loop, oom_retries=config.oom_retries
        ),
        WatchReservations(config.parallelism.shares(plan.resources)[0]),
        WatchInput(),
        EventRecorder(diary, endings, tracker, folder.secrets),
        StudyEnd(searcher, endings, tracker),
        TrimTrials(),
        keep,
    ]
    guard = DiskGuard(
        config.min_free_disk,
        [folder.path, *filter(None, [session_folder()])],
        held=diary.held,
        went_on=diary.went_on,
    )
    own += [keeper, guard]
    search = SweepSearch(GatedSearcher(searcher, guard), config.budget, plan.max_concurrent_trials)
    with (
        ModelExportProcess() as writer,
        environment(TUNE_ENVIRONMENT),
        clear_errors(folder),
        keep.taken_up(),
    ):
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
            storage_path=config.remote_storage or str(folder.path.parent),
            num_samples=config.budget.num_samples,
            stop=end,
            search_alg=search,
            scheduler=scheduler,
            max_failures=config.max_failures,
            reuse_actors=config.reuse_actors and not scheduler.fresh_actors,
            checkpoint_config=tune.CheckpointConfig(
                checkpoint_at_end=True, num_to_keep=scheduler.num_to_keep
            ),
            # Tune gives the callbacks their states back by their places.
            callbacks=[*own, *early, *callbacks],
            resume_config=tune.ResumeConfig() if recovery.resumes else None,
            resume=True if recovery.resumes else None,
            trial_name_creator=trial_name,
            trial_dirname_creator=trial_name,
            raise_on_failed_trial=False,
            verbose=0,
            progress_reporter=tune.CLIReporter(),  # that of notebooks clears the cell's output
        )
        keeper.free()
        result = sweep_result(
            folder,
            recovery.storage,
            analysis.trials,
            endings,
            tracker,
            diary,
            end,
            unasked=not search.is_finished(),
        )
        reckoning.settle(result, closed=False)
        left = record_result(result, folder, tracker, writer)
        reckoning.settle(result, closed=True)
        diary.over(
            interrupted=result.interrupted,
            run_ids=tracker.run_ids() if tracker else {},
            ended_early=result.ended_early,
            left=left,
        )
    return result


def _target(config: SweepConfig) -> Target | None:
    if config.budget.target is None:
        return None
    return Target(config.leading_objective, config.budget.target, config.constraints)
