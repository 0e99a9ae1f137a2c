"""Parts of a running sweep."""

from ray.tune import Callback
from ray.tune.logger import TBXLoggerCallback

from tune_tf.record import Record
from tune_tf.searchers import OptunaSearcher, StudyView
from tune_tf.sweep.callbacks.budget_limit import BudgetLimit
from tune_tf.sweep.callbacks.checkpoint_retention import CheckpointRetention
from tune_tf.sweep.callbacks.guards import BrokenWorkloadCheck, DiskGuard
from tune_tf.sweep.cluster import session_folder
from tune_tf.sweep.mlflow_store import dataset_of, mlflow_view
from tune_tf.sweep.model.export_process import ExportPrestart, ModelExportProcess
from tune_tf.sweep.plan import SweepPlan, make_scheduler, make_searcher
from tune_tf.sweep.reproducibility import make_reproducible_scheduler
from tune_tf.sweep.resume import Resume
from tune_tf.sweep.stopper import SweepStopper
from tune_tf.sweep_folder import SweepFolder
from tune_tf.trainables.memory.oom_retries import OomRetries
from tune_tf.trainables.memory.recycling import ActorRecycler
from tune_tf.trial_observer import TrialObserver
from tune_tf.tune_internals.trial_state import RunningAverageTrimmer


class SweepParts:
    """Parts of a running sweep."""

    def __init__(
        self,
        folder: SweepFolder,
        plan: SweepPlan,
        record: Record,
        resume: Resume,
        searcher: OptunaSearcher | None = None,
    ) -> None:
        config = folder.config
        self.folder, self.plan, self.record, self.resume = folder, plan, record, resume
        self.scheduler = (
            make_reproducible_scheduler(folder, plan, record)
            if config.reproducible
            else make_scheduler(config, plan.mutations)
        )
        self.searcher = searcher or make_searcher(folder)
        if config.searcher.warm_start_from and resume.history.earlier is None:
            record.record_earlier_results(self.searcher.earlier)
        record.record_dataset(dataset_of(plan.workload))
        self.view = mlflow_view(folder, lambda: self.scheduler.rungs) if config.mlflow else None
        self.observer = TrialObserver(
            record,
            config.leading_objective,
            explain=self.scheduler.explain,
            snapshot=self.scheduler.changed_state,
            note_of=self.searcher.note_of,
            run_id=self.view.run_id_of if self.view else lambda trial_id: None,
        )
        storage, name = folder.study_storage, config.searcher.study_name or folder.mlflow_id
        self.study_view = (
            StudyView(self.searcher.study, self.searcher.criteria, storage, name)
            if storage
            else None
        )
        self.retention = CheckpointRetention(config, resume.storage, self.scheduler, record)
        self.stopper = SweepStopper(config)
        self.scheduler.requested_ends = self.stopper.trial_ends
        self.disk_guard = DiskGuard(
            config.min_free_disk,
            [folder.path, *filter(None, [session_folder()])],
            on_change=record.record_suspension,
        )

    def callbacks(self, export_process: ModelExportProcess) -> list[Callback]:
        """Return the callbacks of the sweep in the order in which Tune calls them."""
        config = self.folder.config
        decided_end = self.scheduler.decided_end if config.reproducible else lambda trial_id: None
        logs_best_model = config.mlflow and config.mlflow.log_best_model
        return [
            # First: it adds outcome and cause to the results that the others read.
            BudgetLimit(
                config,
                self.stopper,
                self.observer,
                decided_end=decided_end,
                record=self.record,
            ),
            # These need no other callback.
            ActorRecycler(),
            *([TBXLoggerCallback()] if config.tensorboard else []),
            # It changes the restart of a failed trial.
            OomRetries(
                self.plan.workload,
                config.parallelism,
                loop=config.loop,
                oom_retries=config.oom_retries,
            ),
            # After those that record something, and those that add to a result.
            self.observer,
            # After the record: it shows what is recorded.
            *([self.study_view] if self.study_view else []),
            # After those that read an ended trial: it drops the metric history of the trial.
            RunningAverageTrimmer(),
            # After the record: the first removes what that needs no more, the next ones may raise.
            self.retention,
            BrokenWorkloadCheck(),
            # After the retention, which may free space.
            self.disk_guard,
            # Last: it only starts a process.
            *(
                [ExportPrestart(export_process, config.budget.num_samples)]
                if logs_best_model
                else []
            ),
        ]
