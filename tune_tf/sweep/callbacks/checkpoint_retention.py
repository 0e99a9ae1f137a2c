"""Removal of checkpoints that no trial or resume needs."""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ray.tune import Callback, Checkpoint
from ray.tune.experiment import Trial
from ray.tune.utils import flatten_dict

from tune_tf.config import SweepConfig
from tune_tf.constraint import is_feasible
from tune_tf.outcome import Outcome
from tune_tf.ranking import Candidate, best_first, kept_result, pareto_front
from tune_tf.schedulers.state import ResumeMixin
from tune_tf.sweep.state.snapshots import SnapshotWriter
from tune_tf.sweep.state.storage import SweepStorage
from tune_tf.tracking.outcome_tracker import OutcomeTracker
from tune_tf.tune_internals.trial_state import latest_result, trial_folder

_log = logging.getLogger(__name__)

_CHECK_EVERY_S = 5.0
_NEWEST = 2  # as many as Tune keeps of each trial by default


@dataclass(frozen=True)
class CheckpointNeeds:
    """Checkpoints that a resume from one saved state needs."""

    ended: frozenset[str]  # ids of trials
    needed: frozenset[str]  # paths that trials resume from or the scheduler may assign
    newest: Mapping[str, str]  # path of each trial's newest checkpoint, by trial id


class CheckpointRetention(Callback):
    """Tune callback that removes unneeded checkpoints.

    It keeps those of the best ended trials (with several objectives also of the Pareto front),
    those of all trials that may continue, and those that the scheduler may assign to another trial.
    An ended trial loses its checkpoints only once a saved state contains its end, because a resume
    after a kill starts from that state. If Tune keeps all checkpoints of a trial for the scheduler,
    those before the last two are removed as soon as the scheduler can no longer assign them.

    Tune must call the outcome tracker first. ``on_removal`` receives the id of an ended trial
    before its checkpoints are removed.
    """

    def __init__(
        self,
        config: SweepConfig,
        storage: SweepStorage,
        snapshots: SnapshotWriter,
        scheduler: ResumeMixin,
        outcome_tracker: OutcomeTracker,
        on_removal: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._storage = storage
        self._snapshots = snapshots
        self._scheduler = scheduler
        self._keeps_all_of_a_trial = scheduler.num_to_keep is None
        self._outcome_tracker = outcome_tracker
        self._on_removal = on_removal
        self._clock = clock
        self._checked_s = clock()
        self._trials: list[Trial] = []
        self._newest: dict[str, str] = {}
        self._done: set[str] = set()  # ended trials without checkpoints

    def on_step_begin(self, trials: list[Trial], **info: Any) -> None:
        """Update the list of trials."""
        self._trials = trials

    def on_checkpoint(self, trial: Trial, checkpoint: Checkpoint, **info: Any) -> None:
        """Note a trial's newest checkpoint."""
        self._newest[trial.trial_id] = checkpoint.path

    def on_trial_start(self, trial: Trial, **info: Any) -> None:
        """Note that a trial runs, possibly again."""
        self._done.discard(trial.trial_id)

    def on_step_end(self, trials: list[Trial], **info: Any) -> None:
        """Remove unneeded checkpoints at intervals."""
        self._trials = trials
        if self._clock() - self._checked_s >= _CHECK_EVERY_S:
            self.remove_unneeded()

    def current_needs(self) -> CheckpointNeeds:
        """Return the checkpoints that a resume from the present state would need."""
        ended = frozenset(trial.trial_id for trial in self._trials if trial.is_finished())
        return CheckpointNeeds(ended, self._needed(), dict(self._newest))

    def remove_unneeded(self) -> None:
        """Remove checkpoints that neither the sweep nor the newest state on disk needs."""
        saved: CheckpointNeeds | None = self._snapshots.written
        if self._config.keep_checkpoints == "all" or saved is None:
            return
        self._checked_s = self._clock()
        ended = [each for each in self._trials if self._has_ended(each)]
        ended = [each for each in ended if each.trial_id not in self._done]
        best = self._best(ended)
        needed = saved.needed | self._needed()
        needed |= _resume_checkpoints(each for each in ended if each.trial_id in best)
        for trial in ended:
            if trial.trial_id in saved.ended and trial.trial_id not in best:
                self._remove_all(trial, needed)
        if self._keeps_all_of_a_trial:
            for trial in self._trials:
                if trial.trial_id in saved.newest and trial.trial_id not in self._done:
                    stored = self._storage.checkpoints(str(trial.path))
                    old = [path for path in stored if path <= saved.newest[trial.trial_id]]
                    self._remove(old[:-_NEWEST], needed)

    def _needed(self) -> frozenset[str]:
        """Return what trials that may continue and the scheduler need."""
        live = (trial for trial in self._trials if not self._has_ended(trial))
        return _resume_checkpoints(live) | self._scheduler.needed_checkpoints

    def _has_ended(self, trial: Trial) -> bool:
        outcome = self._outcome_tracker.outcomes.get(trial.trial_id)
        return trial.is_finished() and outcome not in (None, Outcome.INTERRUPTED)

    def _best(self, ended: Iterable[Trial]) -> set[str]:
        """Return the ids of the trials whose checkpoints are kept.

        A trial that drops out never returns, as the trials ranked before it never disappear.
        """
        candidates, points = [], {}
        for trial in ended:
            last = kept_result(flatten_dict(latest_result(trial)))
            values = [last.get(objective.metric) for objective in self._config.objectives]
            outcome = self._outcome_tracker.outcomes.get(trial.trial_id)
            feasible = is_feasible(self._config.constraints, last)
            candidates.append(Candidate(trial.trial_id, outcome, values[0], feasible))
            if len(values) > 1 and feasible and outcome is Outcome.COMPLETED:
                points[trial.trial_id] = [float("nan") if it is None else it for it in values]
        objective = self._config.leading_objective
        ranked = best_first(candidates, objective)
        infeasible = (replace(each, feasible=True) for each in candidates if not each.feasible)
        ranked += best_first(infeasible, objective)  # they fill the remaining places
        best = ranked[: int(self._config.keep_checkpoints)]
        front = pareto_front(points, self._config.objectives) if points else ()
        return {each.key for each in best} | set(front)

    def _remove_all(self, trial: Trial, needed: Collection[str]) -> None:
        folder = trial_folder(trial)
        stored = self._storage.checkpoints(folder) if folder else []
        if stored and not any(_is_needed(path, needed) for path in stored):
            try:
                self._on_removal(trial.trial_id)
            except OSError:  # the disk is full until they are removed
                self._remove(stored, needed)
                self._on_removal(trial.trial_id)
        if self._remove(stored, needed):
            self._done.add(trial.trial_id)

    def _remove(self, paths: Sequence[str], needed: Collection[str]) -> bool:
        """Remove unneeded checkpoints; return whether none of them is needed."""
        removable = [path for path in paths if not _is_needed(path, needed)]
        for path in removable:
            try:
                self._storage.remove_checkpoint(path)
            except OSError as error:
                _log.warning("the checkpoint %s cannot be removed: %s", path, error)
        return len(removable) == len(paths)


def _resume_checkpoints(trials: Iterable[Trial]) -> frozenset[str]:
    """Return the paths of the checkpoints that trials resume from."""
    return frozenset(trial.checkpoint.path for trial in trials if trial.checkpoint)


def _is_needed(path: str, needed: Collection[str]) -> bool:
    return path in needed or path.rpartition("/")[0] in needed
