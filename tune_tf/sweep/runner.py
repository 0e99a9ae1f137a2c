"""Execution of a sweep by ``tune.run``."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ray import tune
from ray.tune.experiment import Trial
from ray.tune.search import ConcurrencyLimiter, Searcher, SearchGenerator

from tune_tf.config import BudgetSettings, SweepConfig
from tune_tf.record import Record
from tune_tf.results import SweepResult
from tune_tf.schedulers.reproducible import ReproducibleScheduler
from tune_tf.searchers import OptunaSearcher
from tune_tf.sweep.callbacks.guards import DiskGuard, unwrap_tune_errors
from tune_tf.sweep.callbacks.recorders import trial_name
from tune_tf.sweep.cluster import TUNE_ENVIRONMENT, environment_defaults
from tune_tf.sweep.model.export_process import ModelExportProcess
from tune_tf.sweep.parts import SweepParts
from tune_tf.sweep.plan import SweepPlan, make_trial_tracking
from tune_tf.sweep.state.recovery import Recovery
from tune_tf.sweep.stopper import RequestReader, interrupt_sweep
from tune_tf.sweep.sweep_result import record_result, sweep_result
from tune_tf.sweep_folder import SweepFolder
from tune_tf.tracking.trial_run import TrialTracking
from tune_tf.trainables import trainable
from tune_tf.tune_internals import controller
from tune_tf.tune_internals.start_up import fast_start_up


class SweepSearch(SearchGenerator):
    """Search generator that follows an extended budget and waits while disks are full.

    Tune's own restores the original number of trials, and proposes none after the end of a sweep.
    """

    def __init__(
        self,
        searcher: Searcher,
        budget: BudgetSettings,
        max_concurrent_trials: int,
        disk_guard: DiskGuard,
        proposer: ReproducibleScheduler | None = None,
    ) -> None:
        super().__init__(ConcurrencyLimiter(searcher, max_concurrent=max_concurrent_trials))
        self._budget = budget
        self._disk_guard = disk_guard
        self._proposer = proposer
        self._is_ended = False

    @property
    def is_closed(self) -> bool:
        """Whether no trial may start now."""
        return not self._disk_guard.may_start()

    def next_trial(self) -> Trial | None:
        """Return the next trial; None while none may start.

        Once all trials are finished, Tune waits minutes for the next one and reacts neither to
        Ctrl-C nor to its time budget. So when the sweep is to end it gets a trial, which it stops
        without running it.
        """
        if self._proposer is not None and not self._proposer.may_create:
            return None
        if self.is_closed and not (
            controller.all_trials_finished()
            and (self._disk_guard.interrupted or controller.is_stopping_experiment())
        ):
            return None
        return super().next_trial()

    def is_finished(self) -> bool:
        """Return whether no trial is to be created any more.

        Tune then ends the process of each trial that ends, so paused trials would need new ones.
        """
        if self._proposer is None or self._is_ended:
            return super().is_finished()
        return self._proposer.has_all_trials

    def set_finished(self) -> None:
        """End the search."""
        self._is_ended = True
        super().set_finished()

    def get_state(self) -> dict[str, Any]:
        """Return the state for a resume."""
        return {**super().get_state(), "budget": self._budget.model_dump()}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore the search; a finished one continues if the budget has changed."""
        changed = state["budget"] != self._budget.model_dump()
        super().set_state(
            {
                **state,
                "total_samples": self._budget.num_samples,
                "finished": state["finished"] and not changed,
            }
        )


def run_trials(
    folder: SweepFolder,
    plan: SweepPlan,
    record: Record,
    recovery: Recovery,
    callbacks: Sequence[tune.Callback],
    searcher: OptunaSearcher | None = None,
) -> SweepResult:
    """Run a sweep until it ends or is interrupted.

    This process holds the lock of ``record``. ``callbacks`` are called after the sweep's own.
    ``searcher`` is that of the folder, if it was made before.
    """
    parts = SweepParts(folder, plan, record, recovery, searcher)
    RequestReader(record, parts.stopper, interrupt_sweep)
    tracker = parts.tracker
    budget, is_reproducible = folder.config.budget, folder.config.reproducible
    search = SweepSearch(
        parts.searcher,
        budget,
        # Those of a reproducible sweep are created when it is their turn.
        budget.num_samples if is_reproducible else plan.max_concurrent_trials,
        parts.disk_guard,
        parts.scheduler if is_reproducible else None,
    )
    with (
        ModelExportProcess() as export_process,
        environment_defaults(TUNE_ENVIRONMENT),
        unwrap_tune_errors(folder),
        parts.state_saver.require_restore(),
        fast_start_up(),
    ):
        analysis = _run_tune(parts, search, [*parts.callbacks(export_process), *callbacks])
        if is_reproducible and parts.scheduler.end_reason is not None:
            parts.stopper.end(parts.scheduler.end_reason)
        elif is_reproducible and parts.stopper.reason is not None:
            parts.scheduler.note(parts.stopper.reason)
        parts.retention.remove_unneeded()
        result = sweep_result(parts, analysis.trials, search_finished=search.is_finished())
        result, missing_outputs = record_result(result, parts, export_process)
        record.record_session_end(
            interrupted=result.interrupted,
            run_ids=tracker.run_ids() if tracker else {},
            ended_early=result.ended_early,
            missing_outputs=missing_outputs,
            fingerprint=result.fingerprint,
        )
    return result


def sweep_trainable(
    config: SweepConfig,
    plan: SweepPlan,
    log_folder: Path | None,
    tracking: TrialTracking | None = None,
) -> type[tune.Trainable]:
    """Return the trainable class of a sweep's trials."""
    return trainable(
        plan.workload,
        config.parallelism,
        resources=plan.resources,
        loop=config.loop,
        seed=config.seed,
        checkpoint_interval_s=config.checkpoint_interval_s,
        tracking=tracking,
        log_folder=log_folder,
        epochs=config.epochs,
        keep=config.keep_best,
        share_frozen=config.share_frozen,
        reproducible=config.reproducible,
    )


def _run_tune(
    parts: SweepParts, search: SweepSearch, callbacks: Sequence[tune.Callback]
) -> tune.ExperimentAnalysis:
    folder, plan, scheduler = parts.folder, parts.plan, parts.scheduler
    config = folder.config
    resumes = parts.recovery.resumes
    tracking = make_trial_tracking(folder)
    return tune.run(
        sweep_trainable(config, plan, folder.path, tracking),
        name=folder.sweep_id,
        storage_path=config.remote_storage or str(folder.path.parent),
        num_samples=config.budget.num_samples,
        stop=parts.stopper,
        search_alg=search,
        scheduler=scheduler,
        max_failures=config.max_failures,
        reuse_actors=config.reuse_actors,
        checkpoint_config=tune.CheckpointConfig(
            checkpoint_at_end=True, num_to_keep=scheduler.num_to_keep
        ),
        callbacks=callbacks,
        resume_config=tune.ResumeConfig() if resumes else None,
        resume=resumes or None,
        trial_name_creator=trial_name,
        trial_dirname_creator=trial_name,
        raise_on_failed_trial=False,
        verbose=0,
        progress_reporter=tune.CLIReporter(),  # the notebook reporter clears the cell's output
    )
