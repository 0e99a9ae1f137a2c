"""Ray Tune controller in virtual time: the same calls in the same order, without a Ray cluster.

Follows ``ray.tune.execution.tune_controller.TuneController`` of Ray 2.60, including the names that
schedulers and searchers use. Training takes virtual time but no real time; saving and restoring
take neither. A trial that is stopped or paused frees its slot at once, and the next one starts
at once.
"""

import heapq
from collections.abc import Callable, Iterator, KeysView, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Protocol

from ray.tune.experiment import Trial
from ray.tune.schedulers import TrialScheduler
from ray.tune.search import ConcurrencyLimiter, Searcher

from tune_tf.result_keys import TRAINING_ITERATION
from tune_tf.space import flatten
from tune_tf.tune_internals.controller import use_controller


class VirtualResults(Protocol):
    """Source of the results of trials in virtual time."""

    def seconds(self, trial: Trial) -> float:
        """Return the virtual seconds of the trial's next iteration."""

    def result(self, trial: Trial, iteration: int) -> Mapping[str, Any] | None:
        """Return the metrics of an iteration, with ``done`` if the trial ends by itself.

        None if they are not known yet; empty if the trial failed.
        """


@dataclass(frozen=True)
class VirtualCheckpoint:
    """Checkpoint of a simulated trial: the result at which it was saved.

    Args:
        segment: How often the trial had begun again in the state of another one.
    """

    trial: Trial
    segment: int
    metrics: dict[str, Any]

    @property
    def checkpoint(self) -> "VirtualCheckpoint":
        """The checkpoint itself, which Tune expects beside the metrics."""
        return self


class VirtualSearch:
    """Replacement for Tune's ``SearchGenerator`` that creates trials from the searcher's proposals.

    Args:
        num_samples: Number of trials to create; None for no limit.
        max_t: Iteration at which Tune stops a trial, as with ``tune.run(stop=...)``.
        folder: For the notes of Ray's population based schedulers.
    """

    def __init__(
        self,
        searcher: ConcurrencyLimiter,
        num_samples: int | None,
        max_t: int,
        folder: str,
    ) -> None:
        self.searcher = searcher
        self._num_samples = num_samples
        self._max_t = max_t
        self._storage = SimpleNamespace(experiment_driver_staging_path=folder)
        self._num_created = 0
        self._finished = False

    @property
    def metric(self) -> str:
        """The searcher's metric."""
        return str(self.searcher.metric)

    def is_finished(self) -> bool:
        """Return whether no further trial will be created."""
        return self._finished or self._num_created == self._num_samples

    def next_trial(self) -> Trial | None:
        """Return a new trial, or None if the searcher has no proposal now."""
        trial_id = f"{self._num_created:08d}"
        config = self.searcher.suggest(trial_id)
        if config == Searcher.FINISHED:
            self._finished = True
            return None
        if config is None:
            return None
        self._num_created += 1
        return Trial(
            "simulated",
            config=config,
            trial_id=trial_id,
            storage=self._storage,
            evaluated_params=flatten(config),
            experiment_tag=str(self._num_created),
            stopping_criterion={TRAINING_ITERATION: self._max_t},
            stub=True,
        )


@dataclass
class _Run:
    """Run of a trial in a slot; ``running_s`` counts the virtual seconds of all its runs."""

    trial: Trial
    iteration: int
    running_s: float
    ends_s: float = 0.0


class VirtualController:
    """Replacement for Tune's controller, driven by an event queue.

    Args:
        on_event: Called with the time in seconds, the trial and each of its results, empty if it
            failed; returns whether to continue.
    """

    def __init__(
        self,
        results: VirtualResults,
        search: VirtualSearch,
        scheduler: TrialScheduler,
        *,
        num_workers: int,
        on_event: Callable[[float, Trial, Mapping[str, Any]], bool],
    ) -> None:
        self.search_alg = search
        self.scheduler_alg = scheduler
        self._results = results
        self._num_workers = num_workers
        self._on_event = on_event
        self.now_s = 0.0
        self._trials: list[Trial] = []
        self._live: dict[Trial, None] = {}
        self._pending: list[Trial] = []
        self._staged: dict[Trial, None] = {}
        self._runs: dict[Trial, _Run] = {}
        self._running_s: dict[Trial, float] = {}
        self._queue: list[tuple[float, int, _Run]] = []
        self._num_queued = 0
        self._is_filled = False
        self.starts: dict[Trial, list[VirtualCheckpoint]] = {}
        """The checkpoints of others from which trials have continued, in order."""

    def run(self) -> bool:
        """Run until all trials have ended or none can run, or as :meth:`advance`.

        Returns:
            Whether all trials have ended.
        """
        self.advance()
        return all(trial.is_finished() for trial in self._trials)

    def advance(self) -> None:
        """Process results in order of time until one is unknown, or ``on_event`` returns False."""
        with use_controller(self):
            while True:
                if not self._is_filled:  # else a result was awaited
                    while self._fill():
                        pass
                    self._is_filled = True
                run = self._next_run()
                result = self._results.result(run.trial, run.iteration) if run else None
                if run is None or result is None:
                    return
                self.now_s, *_ = heapq.heappop(self._queue)
                self._is_filled = False
                process = self._process_result if result else self._process_failure
                if not process(run, result):
                    return

    def next_result(self, trial: Trial) -> tuple[int, float] | None:
        """Return the iteration that a running trial is in, and its end in virtual seconds."""
        run = self._runs.get(trial)
        return (run.iteration, run.ends_s) if run else None

    # Interface for schedulers.

    def get_trials(self) -> list[Trial]:
        """Return all trials."""
        return self._trials

    def get_live_trials(self) -> KeysView[Trial]:
        """Return the trials that have not been stopped."""
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
        self._leave_slot(trial, Trial.TERMINATED)
        self._live.pop(trial, None)

    def pause_trial(self, trial: Trial, should_checkpoint: bool = True) -> None:
        """Pause a running trial, which frees its slot."""
        if trial not in self._runs:
            return
        if should_checkpoint:
            self._schedule_trial_save(trial)
        self._leave_slot(trial, Trial.PAUSED)

    def _schedule_trial_save(
        self, trial: Trial, result: dict[str, Any] | None = None
    ) -> VirtualCheckpoint:
        """Save a trial at once, under Ray's name, which population based training calls."""
        segment = len(self.starts.get(trial, ()))
        checkpoint = VirtualCheckpoint(trial, segment, dict(result or trial.last_result))
        trial.run_metadata.checkpoint_manager.register_checkpoint(checkpoint)
        return checkpoint

    def _set_trial_status(self, trial: Trial, status: str) -> None:
        """Set a trial's status, under Ray's name."""
        trial.set_status(status)

    # Steps of Tune's loop: create trials, start one, process a result.

    def _fill(self) -> bool:
        """Add new trials, start one that the scheduler chooses; return whether anything changed."""
        changed = False
        for trial in self._new_trials():
            self._trials.append(trial)
            self._live[trial] = None
            self._pending.append(trial)
            self.scheduler_alg.on_trial_add(self, trial)
            changed = True
        num_live = len(self._live)
        chosen = self.scheduler_alg.choose_trial_to_run(self)
        changed |= len(self._live) < num_live  # as Tune, which asks again at its next step
        if chosen is not None and chosen not in self._staged and chosen not in self._runs:
            if chosen.status != Trial.PENDING:
                chosen.set_status(Trial.PENDING)
            self._staged[chosen] = None
            changed = True
        for trial in self._pending:
            self._staged.setdefault(trial, None)
        self._pending.clear()
        if self._staged and len(self._runs) < self._num_workers:
            # As with reuse_actors=True: a free actor runs the trial that the scheduler chose.
            self._start(chosen if chosen in self._staged else next(iter(self._staged)))
            changed = True
        return changed

    def _new_trials(self) -> Iterator[Trial]:
        """Yield new trials until the searcher has no proposal or enough trials are pending."""
        search = self.search_alg
        max_pending = search.searcher.max_concurrent
        while not search.is_finished():
            if sum(trial.status == Trial.PENDING for trial in self._live) >= max_pending:
                return
            trial = search.next_trial()
            if trial is None:
                return
            yield trial

    def _start(self, trial: Trial) -> None:
        del self._staged[trial]
        trial.set_status(Trial.RUNNING)
        latest = trial.latest_checkpoint_result
        iteration = int(latest.metrics[TRAINING_ITERATION]) if latest else 0
        if latest and latest.checkpoint.trial is not trial:
            self.starts.setdefault(trial, []).append(latest.checkpoint)
        run = self._runs[trial] = _Run(trial, iteration, self._running_s.get(trial, 0.0))
        self._train(run)

    def _train(self, run: _Run) -> None:
        seconds = self._results.seconds(run.trial)
        run.iteration += 1
        run.running_s += seconds
        run.ends_s = self.now_s + seconds
        heapq.heappush(self._queue, (run.ends_s, self._num_queued, run))
        self._num_queued += 1

    def _next_run(self) -> _Run | None:
        """Return the run that has the next result; None if there is none."""
        while self._queue:
            run = self._queue[0][-1]
            if self._runs.get(run.trial) is run:
                return run
            heapq.heappop(self._queue)
        return None

    def _process_failure(self, run: _Run, result: Mapping[str, Any]) -> bool:
        """Handle a failed trial in Tune's order of calls; return whether to continue."""
        trial = run.trial
        self.scheduler_alg.on_trial_error(self, trial)
        self.search_alg.searcher.on_trial_complete(trial.trial_id, error=True)
        should_continue = self._on_event(self.now_s, trial, result)
        self._leave_slot(trial, Trial.ERROR)
        self._live.pop(trial, None)
        return should_continue

    def _process_result(self, run: _Run, metrics: Mapping[str, Any]) -> bool:
        """Handle a result in Tune's order of calls; return whether to continue."""
        trial = run.trial
        result = {
            "done": False,
            **metrics,
            TRAINING_ITERATION: run.iteration,
            "time_total_s": run.running_s,
            "trial_id": trial.trial_id,
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
        should_continue = self._on_event(self.now_s, trial, result)
        if decision == TrialScheduler.STOP:
            self.stop_trial(trial)
        elif decision == TrialScheduler.PAUSE:
            self.pause_trial(trial)
        elif self._runs.get(trial) is run:
            self._train(run)
        return should_continue

    def _leave_slot(self, trial: Trial, status: str) -> None:
        run = self._runs.pop(trial, None)
        if run is not None:
            self._running_s[trial] = run.running_s
        self._staged.pop(trial, None)
        trial.set_status(status)
