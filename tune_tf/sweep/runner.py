"""Execution of a sweep by ``tune.run``."""

import contextlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ray import tune
from ray.tune.experiment import Trial
from ray.tune.search import ConcurrencyLimiter, Searcher, SearchGenerator

from tune_tf.config import SweepConfig
from tune_tf.record import Record
from tune_tf.results import SweepResult
from tune_tf.schedulers.reproducible import ReproducibleScheduler
from tune_tf.searchers import OptunaSearcher
from tune_tf.sweep.callbacks.guards import DiskGuard, unwrap_tune_errors
from tune_tf.sweep.cluster import TUNE_ENVIRONMENT, environment_defaults
from tune_tf.sweep.mlflow_store import MLFLOW_RUNS, close_view, record_runs
from tune_tf.sweep.model.export_process import ModelExportProcess
from tune_tf.sweep.parts import SweepParts
from tune_tf.sweep.plan import SweepPlan, make_trial_tracking
from tune_tf.sweep.resume import Resume
from tune_tf.sweep.stopper import RequestReader, SweepStopper, interrupt_sweep
from tune_tf.sweep.sweep_result import record_result, sweep_result
from tune_tf.sweep_folder import SweepFolder, trial_folder_name
from tune_tf.tracking.trial_run import TrialTracking
from tune_tf.trainables import trainable
from tune_tf.tune_internals.start_up import fast_start_up
from tune_tf.tune_internals.trial_state import trial_number

_STATE_OF_TUNE: Final = ("experiment_state-*.json", "callback-states-*.pkl")
"""Files that Tune insists on and nobody reads."""


class SweepSearch(SearchGenerator):
    """Search generator that goes on with the trials of a resume, and waits while disks are full."""

    def __init__(
        self,
        searcher: Searcher,
        max_concurrent_trials: int,
        disk_guard: DiskGuard,
        stopper: SweepStopper,
        make_trials: Callable[[Mapping[str, Any]], Sequence[Trial]] = lambda spec: (),
        num_trials: int = 0,
        proposer: ReproducibleScheduler | None = None,
    ) -> None:
        """Create the generator.

        Args:
            searcher: Suggests new trials.
            max_concurrent_trials: Limit of the searcher.
            disk_guard: Says whether a trial may start.
            stopper: Says whether the sweep is to end.
            make_trials: Returns the trials to go on with, given the specification of Tune's
                experiment.
            num_trials: Number of trials of earlier sessions.
            proposer: Scheduler of a reproducible sweep.
        """
        super().__init__(ConcurrencyLimiter(searcher, max_concurrent=max_concurrent_trials))
        self._disk_guard = disk_guard
        self._stopper = stopper
        self._make_trials = make_trials
        self._num_trials = num_trials
        self._proposer = proposer
        self._going_on: deque[Trial] = deque()
        self._unfinished: list[Trial] = []
        self._is_ended = False

    def add_configurations(self, experiments: Any) -> None:
        """Make the trials to go on with."""
        super().add_configurations(experiments)
        self.set_state({**self.get_state(), "counter": self._num_trials})
        self._going_on.extend(self._make_trials(experiments[0].spec))

    @property
    def is_closed(self) -> bool:
        """Whether no trial may start now."""
        return not self._disk_guard.may_start()

    def next_trial(self) -> Trial | None:
        """Return the next trial, one that goes on before new ones; None while none may start.

        Once all trials are finished, Tune waits minutes for the next one and reacts neither to
        Ctrl-C nor to its time budget. So when the sweep is to end it gets a trial, which it stops
        without running it.
        """
        trial = self._next_trial()
        if trial is not None:
            self._unfinished.append(trial)
        return trial

    def _next_trial(self) -> Trial | None:
        if self._going_on and not self._is_ended:
            return self._going_on.popleft()
        if self._proposer is not None and not self._proposer.may_create:
            return None
        if self.is_closed:
            self._unfinished = [trial for trial in self._unfinished if not trial.is_finished()]
            if self._unfinished or not (self._disk_guard.interrupted or self._stopper.stop_all()):
                return None
        return super().next_trial()

    def is_finished(self) -> bool:
        """Return whether no trial is to be created any more.

        Tune then ends the process of each trial that ends, so paused trials would need new ones.
        """
        if self._is_ended:
            return True
        if self._proposer is not None:
            return not self._going_on and self._proposer.has_all_trials
        return not self._going_on and super().is_finished()

    def set_finished(self) -> None:
        """End the search."""
        self._is_ended = True
        super().set_finished()

    def save_to_dir(self, dirpath: str, session_str: str) -> None:
        """Write nothing: the record has all that a resume needs."""


def run_trials(
    folder: SweepFolder,
    plan: SweepPlan,
    record: Record,
    resume: Resume,
    callbacks: Sequence[tune.Callback],
    searcher: OptunaSearcher | None = None,
) -> SweepResult:
    """Run a sweep until it ends or is interrupted.

    This process holds the lock of ``record``. ``callbacks`` are called after the sweep's own.
    ``searcher`` is that of the folder, if it was made before.
    """
    parts = SweepParts(folder, plan, record, resume, searcher)
    RequestReader(record, parts.stopper, interrupt_sweep)
    view = parts.view
    budget, is_reproducible = folder.config.budget, folder.config.reproducible
    search = SweepSearch(
        parts.searcher,
        # Those of a reproducible sweep are created when it is their turn.
        budget.num_samples if is_reproducible else plan.max_concurrent_trials,
        parts.disk_guard,
        parts.stopper,
        lambda spec: _trials_of_resume(parts, spec),
        len(resume.history.trials),
        parts.scheduler if is_reproducible else None,
    )
    with (
        ModelExportProcess() as export_process,
        environment_defaults(TUNE_ENVIRONMENT),
        unwrap_tune_errors(folder),
        fast_start_up(),
        contextlib.ExitStack() as stack,
        parts.study_view or contextlib.nullcontext(),
    ):
        if view is not None:
            stack.callback(view.stop)
            view.start(resume.history.trials.keys())
        _run_tune(parts, search, [*parts.callbacks(export_process), *callbacks])
        parts.searcher.finish(parts.observer.outcomes)
        if view is not None:
            view.flush()
            record_runs(view, record)
        if is_reproducible and parts.scheduler.end_reason is not None:
            parts.stopper.end(parts.scheduler.end_reason)
        elif is_reproducible and parts.stopper.reason is not None:
            parts.scheduler.note(parts.stopper.reason)
        parts.retention.remove_unneeded()
        result = sweep_result(parts, search_finished=search.is_finished())
        result, missing_outputs = record_result(result, parts, export_process)
        record.record_session_end(
            interrupted=result.interrupted,
            ended_early=result.ended_early,
            missing_outputs=[*missing_outputs, *([MLFLOW_RUNS] if view else [])],
            fingerprint=result.fingerprint,
        )
        if view is not None and close_view(view, folder):
            record.record_missing_outputs(missing_outputs)
            record_runs(view, record)
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


def trial_name(trial: Trial) -> str:
    """Return the name of a trial from its number, which determines the seed."""
    return trial_folder_name(trial_number(trial))


def _trials_of_resume(parts: SweepParts, spec: Mapping[str, Any]) -> list[Trial]:
    """Return the trials that go on, which the scheduler then knows."""
    trials = parts.resume.make_trials(spec, parts.folder.config.space)
    parts.scheduler.resume(parts.resume.for_scheduler(trials))
    return sorted(trials, key=lambda trial: trial.status != Trial.PAUSED)  # Tune adds these at once


def _run_tune(parts: SweepParts, search: SweepSearch, callbacks: Sequence[tune.Callback]) -> None:
    folder, plan, scheduler = parts.folder, parts.plan, parts.scheduler
    config = folder.config
    tracking = make_trial_tracking(folder)
    tune.run(
        sweep_trainable(config, plan, folder.path, tracking),
        name=folder.sweep_id,
        storage_path=config.remote_storage or str(folder.path.parent),
        num_samples=config.budget.num_samples,
        stop=parts.stopper,
        search_alg=search,
        scheduler=scheduler,
        max_failures=config.max_failures,
        reuse_actors=config.reuse_actors,
        checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=True),
        callbacks=callbacks,
        trial_name_creator=trial_name,
        trial_dirname_creator=trial_name,
        raise_on_failed_trial=False,
        verbose=0,
        progress_reporter=tune.CLIReporter(),  # the notebook reporter clears the cell's output
    )
    for pattern in _STATE_OF_TUNE:
        for path in folder.path.glob(pattern):
            path.unlink(missing_ok=True)
