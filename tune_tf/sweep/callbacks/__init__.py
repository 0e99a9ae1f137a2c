"""Callbacks of a sweep, in the order in which Tune calls them."""

from dataclasses import dataclass

from ray.tune import Callback

from tune_tf.events import EventLog
from tune_tf.schedulers.state import ResumeMixin
from tune_tf.searchers import OptunaSearcher
from tune_tf.sweep.callbacks.budget_limit import BudgetLimit
from tune_tf.sweep.callbacks.checkpoint_retention import CheckpointRetention
from tune_tf.sweep.callbacks.guards import BrokenWorkloadCheck, DiskGuard
from tune_tf.sweep.callbacks.recorders import EventRecorder, ResultFiles, StudyFinalizer
from tune_tf.sweep.callbacks.state_saver import SchedulerStateSaver, StateSaver
from tune_tf.sweep.model.export_process import ExportPrestart, ModelExportProcess
from tune_tf.sweep.plan import SweepPlan
from tune_tf.sweep.state.recovery import Recovery
from tune_tf.sweep.stopper import SweepStopper
from tune_tf.sweep_folder import SweepFolder
from tune_tf.tracking import MLflowCallback, OutcomeTracker
from tune_tf.trainables.memory.oom_retries import OomRetries
from tune_tf.trainables.memory.recycling import ActorRecycler
from tune_tf.trainables.multi_worker import fewer_workers
from tune_tf.trainables.resource_warnings import InputWaitMonitor, ReservationMonitor
from tune_tf.tune_internals.trial_state import RunningAverageTrimmer


@dataclass(frozen=True)
class SweepParts:
    """Parts of a running sweep; the outcome tracker is that of the MLflow callback, if any."""

    folder: SweepFolder
    plan: SweepPlan
    event_log: EventLog
    recovery: Recovery
    scheduler: ResumeMixin
    searcher: OptunaSearcher
    tracker: MLflowCallback | None
    outcome_tracker: OutcomeTracker
    stopper: SweepStopper
    retention: CheckpointRetention
    state_saver: StateSaver
    disk_guard: DiskGuard


def sweep_callbacks(parts: SweepParts, export_process: ModelExportProcess) -> list[Callback]:
    """Return the callbacks of a sweep.

    The order is part of the saved state: Tune restores the states of callbacks by position.
    """
    config, plan = parts.folder.config, parts.plan
    logs_best_model = parts.tracker and config.mlflow and config.mlflow.log_best_model
    return [
        # First: it adds outcome and cause to the results that the others read.
        BudgetLimit(config, parts.stopper, parts.outcome_tracker),
        # Next: later ones read outcomes and run ids from it.
        parts.tracker or parts.outcome_tracker,
        # These need no other callback.
        SchedulerStateSaver(parts.scheduler),
        ActorRecycler(),
        ResultFiles(parts.folder.path, parts.recovery.storage),
        # After the tracker and the result files: it raises.
        BrokenWorkloadCheck(),
        # These change the restart of a failed trial, or warn.
        *fewer_workers(config.parallelism),
        OomRetries(
            plan.workload, config.parallelism, loop=config.loop, oom_retries=config.oom_retries
        ),
        ReservationMonitor(config.parallelism.shares(plan.resources)[0]),
        InputWaitMonitor(),
        # After the tracker: it logs outcomes and the id of the sweep's run.
        EventRecorder(parts.event_log, parts.outcome_tracker, parts.tracker, parts.folder.secrets),
        # After the tracker, which has all run ids only at the end of the experiment.
        StudyFinalizer(parts.searcher, parts.outcome_tracker, parts.tracker),
        # After those that read an ended trial: it drops the metric history of the trial.
        RunningAverageTrimmer(),
        # Before the retention, which removes only what no saved state needs.
        parts.state_saver,
        parts.retention,
        # After the retention, which may free space.
        parts.disk_guard,
        # Last: it only starts a process.
        *([ExportPrestart(export_process, config.budget)] if logs_best_model else []),
    ]
