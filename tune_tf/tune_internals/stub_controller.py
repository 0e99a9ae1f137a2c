"""Ray Tune's controller for trials that run elsewhere: the same calls in the same order.

Follows ``ray.tune.execution.tune_controller.TuneController`` of Ray 2.60, including the names that
schedulers and searchers use. Results are reported to it; it starts no cluster and keeps no time.
"""

import tempfile
from collections.abc import Iterator, KeysView, Mapping
from types import SimpleNamespace
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import TrialScheduler
from ray.tune.search import ConcurrencyLimiter, Searcher

from tune_tf.result_keys import TRAINING_ITERATION
from tune_tf.space import flatten
from tune_tf.tune_internals.controller import use_controller


class StubController:
    """Replacement for Tune's controller whose trials train elsewhere, or not at all.

    Args:
        searcher: Proposes configs.
        scheduler: Decides. It must not continue trials from each other's checkpoints.
        num_slots: Trials that run at a time.
        max_t: Iteration at which Tune ends a trial.
        num_samples: Number of trials; None for no limit.
        max_concurrent: Unfinished trials at most, including paused ones; ``num_slots`` if None.

    Attributes:
        running: Trials that are to train, in the order in which they began to.
    """

    def __init__(
        self,
        searcher: Searcher,
        scheduler: TrialScheduler,
        *,
        num_slots: int,
        max_t: int,
        num_samples: int | None = None,
        max_concurrent: int | None = None,
    ) -> None:
        self.scheduler_alg = scheduler
        self.running: dict[Trial, None] = {}
        self.has_all_trials: bool = False
        self.search_alg = SimpleNamespace(
            searcher=ConcurrencyLimiter(searcher, max_concurrent or num_slots),
            metric=searcher.metric,
            is_finished=lambda: self.has_all_trials,
        )
        self._num_slots, self._max_t, self._num_samples = num_slots, max_t, num_samples
        self._trials: list[Trial] = []
        self._live: dict[Trial, None] = {}
        self._staged: dict[Trial, None] = {}
        self._folder = tempfile.TemporaryDirectory()  # for the notes of Ray's schedulers
        self._storage = SimpleNamespace(experiment_driver_staging_path=self._folder.name)

    def fill(self) -> None:
        """Create trials, and start those that the scheduler chooses, while slots are free."""
        with use_controller(self):
            while self._fill_a_slot():
                pass

    def report(self, trial: Trial, iteration: int, metrics: Mapping[str, Any]) -> None:
        """Tell scheduler and searcher a result of a running trial, and do what is decided."""
        result = {
            "done": False,
            **metrics,
            TRAINING_ITERATION: iteration,
            "trial_id": trial.trial_id,
        }
        flat_result = dict(result)
        with use_controller(self):
            decision = TrialScheduler.STOP
            if not trial.should_stop(flat_result):
                decision = self.scheduler_alg.on_trial_result(self, trial, flat_result)
            if decision == TrialScheduler.STOP:
                result["done"] = True
            else:
                self.search_alg.searcher.on_trial_result(trial.trial_id, flat_result)
            trial.update_last_result(result)
            if decision == TrialScheduler.STOP:
                self.stop_trial(trial)
            elif decision == TrialScheduler.PAUSE:
                self.pause_trial(trial)

    def report_failure(self, trial: Trial) -> None:
        """Tell scheduler and searcher that a running trial has failed."""
        with use_controller(self):
            self.scheduler_alg.on_trial_error(self, trial)
            self.search_alg.searcher.on_trial_complete(trial.trial_id, error=True)
            self._leave(trial, Trial.ERROR)

    # Interface for schedulers.

    def get_trials(self) -> list[Trial]:
        """Return all trials."""
        return self._trials

    def get_live_trials(self) -> KeysView[Trial]:
        """Return the trials that have not ended."""
        return self._live.keys()

    def get_trial(self, trial_id: str) -> Trial | None:
        """Return the trial with an id, or None."""
        return next((trial for trial in self._trials if trial.trial_id == trial_id), None)

    def stop_trial(self, trial: Trial) -> None:
        """Stop a trial in any state, and notify scheduler and searcher."""
        if trial.is_finished():
            return
        searcher = self.search_alg.searcher
        if trial.status == Trial.RUNNING:
            self.scheduler_alg.on_trial_complete(self, trial, dict(trial.last_result))
            searcher.on_trial_complete(trial.trial_id, result=dict(trial.last_result))
        else:
            self.scheduler_alg.on_trial_remove(self, trial)
            searcher.on_trial_complete(trial.trial_id)
        self._leave(trial, Trial.TERMINATED)

    def pause_trial(self, trial: Trial, should_checkpoint: bool = True) -> None:
        """Pause a running trial, which frees its slot."""
        if trial in self.running:
            self._leave(trial, Trial.PAUSED)

    def _set_trial_status(self, trial: Trial, status: str) -> None:
        """Set a trial's status, under Ray's name."""
        trial.set_status(status)

    # A step of Tune's loop: create trials, start one.

    def _fill_a_slot(self) -> bool:
        """Add new trials, start one that the scheduler chooses; return whether anything changed."""
        new = list(self._new_trials())
        num_live = len(self._live)
        chosen = self.scheduler_alg.choose_trial_to_run(self)
        changed = bool(new) or len(self._live) < num_live  # as Tune, which then asks once more
        if chosen is not None and chosen not in self._staged and chosen not in self.running:
            chosen.set_status(Trial.PENDING)
            self._staged[chosen] = None
            changed = True
        self._staged.update(dict.fromkeys(new))
        if self._staged and len(self.running) < self._num_slots:
            # As with reuse_actors=True: a free actor runs the trial that the scheduler chose.
            started = chosen if chosen in self._staged else next(iter(self._staged))
            del self._staged[started]
            started.set_status(Trial.RUNNING)
            self.running[started] = None
            changed = True
        return changed

    def _new_trials(self) -> Iterator[Trial]:
        """Yield new trials until the searcher has no proposal or enough trials are pending."""
        searcher = self.search_alg.searcher
        while not self.has_all_trials:
            pending = sum(trial.status == Trial.PENDING for trial in self._live)
            if pending >= searcher.max_concurrent:
                return
            trial_id = f"{len(self._trials):08d}"
            config = searcher.suggest(trial_id)
            if config is None:
                return
            if config == Searcher.FINISHED:
                self.has_all_trials = True
                return
            trial = Trial(
                "stub",
                config=config,
                trial_id=trial_id,
                storage=self._storage,
                evaluated_params=flatten(config),
                experiment_tag=str(len(self._trials) + 1),
                stopping_criterion={TRAINING_ITERATION: self._max_t},
                stub=True,
            )
            self._trials.append(trial)
            self._live[trial] = None
            self.has_all_trials = len(self._trials) == self._num_samples
            self.scheduler_alg.on_trial_add(self, trial)
            yield trial

    def _leave(self, trial: Trial, status: str) -> None:
        """Take a trial out of its slot."""
        self.running.pop(trial, None)
        self._staged.pop(trial, None)
        trial.set_status(status)
        if trial.is_finished():
            self._live.pop(trial, None)
