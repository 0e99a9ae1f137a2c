"""Ray Tune's controller without Ray: the same calls in the same order, in virtual time.

Follows ``ray.tune.execution.tune_controller.TuneController`` of Ray 2.60, whose interface to
schedulers and searchers is what the names below belong to. Training, saving and restoring take no
real time; the last two no virtual time either. A trial that is stopped or paused frees its slot at
once, and the next one starts at once.
"""

import heapq
from collections.abc import Callable, Iterator, KeysView
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from ray.tune.execution.tune_controller import TuneController
from ray.tune.experiment import Trial
from ray.tune.schedulers import TrialScheduler
from ray.tune.search import ConcurrencyLimiter, Searcher

from tune_tf.result_keys import TRAINING_ITERATION
from tune_tf.simulation.problem import Problem
from tune_tf.space import flat

_JITTER: Final = 0.1


@dataclass(frozen=True)
class VirtualCheckpoint:
    """What a simulated trial goes on from.

    Args:
        metrics: The result it was saved at; its iteration is all there is to a state, as a curve
            depends on nothing but the config and the iteration.
    """

    metrics: dict[str, Any]

    @property
    def checkpoint(self) -> "VirtualCheckpoint":
        """Itself: Tune keeps a checkpoint and its metrics side by side."""
        return self


@dataclass(frozen=True)
class VirtualStorage:
    """Where Ray's population based schedulers write notes.

    Args:
        experiment_driver_staging_path: A folder; Ray's name for it.
    """

    experiment_driver_staging_path: str


class VirtualSearch:
    """Stands for Tune's ``SearchGenerator``: makes trials of what the searcher proposes.

    Args:
        searcher: The searcher, limited in how many trials it may have at a time.
        num_samples: Trials to make; None for as many as there is time for.
        max_t: Iteration at which Tune stops a trial, as by ``tune.run(stop=...)``.
        storage: Where schedulers may write.
    """

    def __init__(
        self,
        searcher: ConcurrencyLimiter,
        num_samples: int | None,
        max_t: int,
        storage: VirtualStorage,
    ) -> None:
        self.searcher = searcher
        self._num_samples = num_samples
        self._max_t = max_t
        self._storage = storage
        self._num_made = 0
        self._finished = False

    @property
    def metric(self) -> str:
        """The searcher's metric."""
        return str(self.searcher.metric)

    def is_finished(self) -> bool:
        """Return whether no further trial will be made."""
        return self._finished or self._num_made == self._num_samples

    def next_trial(self) -> Trial | None:
        """Return a new trial, or None if the searcher has none at this time."""
        trial_id = f"{self._num_made:08d}"
        config = self.searcher.suggest(trial_id)
        if config == Searcher.FINISHED:
            self._finished = True
            return None
        if config is None:
            return None
        self._num_made += 1
        return Trial(
            "simulated",
            config=config,
            trial_id=trial_id,
            storage=self._storage,
            evaluated_params=flat(config),
            experiment_tag=str(self._num_made),
            stopping_criterion={TRAINING_ITERATION: self._max_t},
            stub=True,
        )


@dataclass
class _Run:
    """A trial in a slot.

    Args:
        trial: The trial.
        iteration: The iteration that it is at.
        running_s: Virtual seconds that it has run, in all its runs.
    """

    trial: Trial
    iteration: int
    running_s: float


class VirtualController:
    """What schedulers know as the controller, over an event queue.

    Args:
        problem: Gives the metrics.
        search: Makes the trials.
        scheduler: Decides on them.
        num_workers: Trials that run at a time.
        rng: Draws how much an iteration's duration differs from the problem's, up to 10 %.
        on_event: Is told the time in seconds, the trial, the iteration and the value of each
            result, and returns whether to go on.
    """

    def __init__(
        self,
        problem: Problem,
        search: VirtualSearch,
        scheduler: TrialScheduler,
        *,
        num_workers: int,
        rng: np.random.Generator,
        on_event: Callable[[float, Trial, int, float], bool],
    ) -> None:
        self.search_alg = search
        self.scheduler_alg = scheduler
        self._problem = problem
        self._num_workers = num_workers
        self._rng = rng
        self._on_event = on_event
        self._now_s = 0.0
        self._trials: list[Trial] = []
        self._live: dict[Trial, None] = {}
        self._pending: list[Trial] = []
        self._staged: dict[Trial, None] = {}
        self._runs: dict[Trial, _Run] = {}
        self._running_s: dict[Trial, float] = {}
        self._queue: list[tuple[float, int, _Run]] = []
        self._num_queued = 0

    def run(self) -> bool:
        """Run until nothing is left to do, or ``on_event`` says no.

        Returns:
            Whether all trials have ended; False if it was interrupted or has stalled.
        """
        while True:
            while self._fill():
                pass
            run = self._next_run()
            if run is None:
                return all(trial.is_finished() for trial in self._trials)
            if not self._process_result(run):
                return False

    @property  # type: ignore[misc]  # object's may be set; nobody sets this one
    def __class__(self) -> type:
        """Ray's controller, as with a mock that has a spec.

        tune_tf's searcher looks for it among its callers, and asks it what Tune does not tell.
        """
        return TuneController

    # What schedulers call.

    def get_trials(self) -> list[Trial]:
        """Return all trials."""
        return self._trials

    def get_live_trials(self) -> KeysView[Trial]:
        """Return the trials that have not been stopped."""
        return self._live.keys()

    def get_trial(self, trial_id: str) -> Trial | None:
        """Return the trial of an id, or None."""
        return next((trial for trial in self._trials if trial.trial_id == trial_id), None)

    def stop_trial(self, trial: Trial) -> None:
        """Stop a trial in any state, and tell scheduler and searcher."""
        if trial.is_finished():
            return
        searcher = self.search_alg.searcher
        if trial.status == Trial.RUNNING:
            self.scheduler_alg.on_trial_complete(self, trial, dict(trial.last_result))
            searcher.on_trial_complete(trial.trial_id, result=dict(trial.last_result))
        else:
            self.scheduler_alg.on_trial_remove(self, trial)
            searcher.on_trial_complete(trial.trial_id)
        self._leave_slot(trial, Trial.TERMINATED)
        self._live.pop(trial, None)

    def pause_trial(self, trial: Trial, should_checkpoint: bool = True) -> None:
        """Take a running trial off its slot, to go on later from its last result."""
        if trial not in self._runs:
            return
        if should_checkpoint:
            self._schedule_trial_save(trial)
        self._leave_slot(trial, Trial.PAUSED)

    def _schedule_trial_save(
        self, trial: Trial, result: dict[str, Any] | None = None
    ) -> VirtualCheckpoint:
        """Save a trial at once. Population based training calls it by this name."""
        saved = VirtualCheckpoint(dict(result or trial.last_result))
        trial.run_metadata.checkpoint_manager.register_checkpoint(saved)
        return saved

    # One step of Tune's loop: ask for trials, start some, process a result.

    def _fill(self) -> bool:
        """Ask for trials, let the scheduler choose, start one; return whether anything changed."""
        changed = False
        for trial in self._new_trials():
            self._trials.append(trial)
            self._live[trial] = None
            self._pending.append(trial)
            self.scheduler_alg.on_trial_add(self, trial)
            changed = True
        chosen = self.scheduler_alg.choose_trial_to_run(self)
        if chosen is not None and chosen not in self._staged and chosen not in self._runs:
            if chosen.status != Trial.PENDING:
                chosen.set_status(Trial.PENDING)
            self._staged[chosen] = None
            changed = True
        for trial in self._pending:
            self._staged.setdefault(trial, None)
        self._pending.clear()
        if self._staged and len(self._runs) < self._num_workers:
            # As with reuse_actors=True: a free actor goes to the trial that the scheduler wants.
            self._start(chosen if chosen in self._staged else next(iter(self._staged)))
            changed = True
        return changed

    def _new_trials(self) -> Iterator[Trial]:
        """Yield new trials while the searcher may have more waiting."""
        search = self.search_alg
        most = search.searcher.max_concurrent
        while not search.is_finished():
            if sum(trial.status == Trial.PENDING for trial in self._live) >= most:
                return
            trial = search.next_trial()
            if trial is None:
                return
            yield trial

    def _start(self, trial: Trial) -> None:
        """Put a trial into a slot, at the iteration that it was saved at."""
        del self._staged[trial]
        trial.set_status(Trial.RUNNING)
        saved = trial.latest_checkpoint_result
        iteration = int(saved.metrics[TRAINING_ITERATION]) if saved else 0
        run = self._runs[trial] = _Run(trial, iteration, self._running_s.get(trial, 0.0))
        self._train(run)

    def _train(self, run: _Run) -> None:
        """Let a trial run its next iteration."""
        jitter = 1 + self._rng.uniform(-_JITTER, _JITTER)
        seconds = self._problem.seconds(run.trial.config) * jitter
        run.iteration += 1
        run.running_s += seconds
        heapq.heappush(self._queue, (self._now_s + seconds, self._num_queued, run))
        self._num_queued += 1

    def _next_run(self) -> _Run | None:
        """Go to the time of the next result, and return whose it is; None if there is none."""
        while self._queue:
            self._now_s, _, run = heapq.heappop(self._queue)
            if self._runs.get(run.trial) is run:
                return run
        return None

    def _process_result(self, run: _Run) -> bool:
        """Ask about a result in Tune's order, and do as is decided; return whether to go on."""
        trial, value = run.trial, self._problem.value(run.trial.config, run.iteration)
        result = {
            self._problem.objective.metric: value,
            TRAINING_ITERATION: run.iteration,
            "time_total_s": run.running_s,
            "trial_id": trial.trial_id,
            "done": False,
        }
        flat_result = dict(result)
        if trial.should_stop(flat_result):
            decision = TrialScheduler.STOP
        else:
            decision = self.scheduler_alg.on_trial_result(self, trial, flat_result)
        if decision == TrialScheduler.STOP:
            result["done"] = True
        else:
            self.search_alg.searcher.on_trial_result(trial.trial_id, flat_result)
        trial.update_last_result(result)
        goes_on = self._on_event(self._now_s, trial, run.iteration, value)
        if decision == TrialScheduler.STOP:
            self.stop_trial(trial)
        elif decision == TrialScheduler.PAUSE:
            self.pause_trial(trial)
        elif self._runs.get(trial) is run:
            self._train(run)
        return goes_on

    def _leave_slot(self, trial: Trial, status: str) -> None:
        run = self._runs.pop(trial, None)
        if run is not None:
            self._running_s[trial] = run.running_s
        self._staged.pop(trial, None)
        trial.set_status(status)
