"""Which checkpoints of a sweep stay on disk."""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ray.tune import Callback, Checkpoint
from ray.tune.experiment import Trial
from ray.tune.utils import flatten_dict

from tune_tf.config import SweepConfig
from tune_tf.constraint import is_feasible
from tune_tf.outcome import Outcome
from tune_tf.ranking import Candidate, best_first, pareto_front
from tune_tf.schedulers.state import ResumeMixin
from tune_tf.sweep.state.snapshots import Snapshots
from tune_tf.sweep.state.storage import SweepStorage
from tune_tf.tracking.outcome_tracker import OutcomeTracker, latest_result

_log = logging.getLogger(__name__)

_LOOK_EVERY_S = 5.0
_NEWEST = 2  # what Tune keeps of each trial where the scheduler lets it


@dataclass(frozen=True)
class Moment:
    """What was needed when a state of the sweep was taken, with which a resume may begin.

    Args:
        ended: Ids of the trials that a resume would not run.
        needed: Paths of the checkpoints that trials went on from, or could be given.
        newest: Path of each trial's newest checkpoint of its own, by Tune's id.
    """

    ended: frozenset[str]
    needed: frozenset[str]
    newest: Mapping[str, str]


class CheckpointRetention(Callback):
    """Removes checkpoints that nobody needs any more while a sweep runs.

    What stays: those of the best trials that have ended, with several objectives also those of the
    Pareto front; those of all trials that may go on; and what the scheduler may give to another
    trial. Of a trial that has ended nothing is removed before a state of the sweep is on disk that
    knows of its end: a resume after a kill begins there, and finds whatever it goes on from. Where
    Tune keeps all checkpoints of a trial for the scheduler's sake, those before its last two go as
    soon as nobody can be given them.

    Args:
        config: The sweep's settings.
        storage: Where the checkpoints are.
        snapshots: Knows which :meth:`moment` the newest state on disk is of.
        scheduler: Says what it may still need.
        endings: Knows how trials ended; called before this one.
        tell: Told the id of each trial that has ended before its checkpoints are removed.
        clock: Seconds that only grow.
    """

    def __init__(
        self,
        config: SweepConfig,
        storage: SweepStorage,
        snapshots: Snapshots,
        scheduler: ResumeMixin,
        endings: OutcomeTracker,
        tell: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._storage = storage
        self._snapshots = snapshots
        self._scheduler = scheduler
        self._keeps_all_of_a_trial = scheduler.num_to_keep is None
        self._endings = endings
        self._tell = tell
        self._clock = clock
        self._looked_s = clock()
        self._trials: list[Trial] = []
        self._newest: dict[str, str] = {}
        self._settled_at: int | None = None
        self._done: set[str] = set()

    def on_step_begin(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """Note the trials."""
        self._trials = trials

    def on_checkpoint(
        self,
        iteration: int,
        trials: list[Trial],
        trial: Trial,
        checkpoint: Checkpoint,
        **info: Any,
    ) -> None:
        """Note a trial's newest checkpoint."""
        self._newest[trial.trial_id] = checkpoint.path

    def on_trial_start(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """Note that a trial goes on, which may have ended before."""
        self._done.discard(trial.trial_id)
        self._settled_at = None

    def on_step_end(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """Remove what nobody needs, now and then."""
        self._trials = trials
        if self._config.keep_checkpoints == "all":
            return
        if self._clock() - self._looked_s >= _LOOK_EVERY_S:
            self.free()

    def moment(self) -> Moment:
        """Return what is needed now, while a state of the sweep is taken."""
        ended = frozenset(trial.trial_id for trial in self._trials if trial.is_finished())
        return Moment(ended, self._needed(), dict(self._newest))

    def free(self) -> None:
        """Remove what nobody needs, as far as the newest state on disk allows."""
        moment: Moment | None = self._snapshots.written
        if self._config.keep_checkpoints == "all" or moment is None:
            return
        num_ended = len(self._endings.outcomes)
        if num_ended == self._settled_at and not self._keeps_all_of_a_trial:
            return
        self._looked_s = self._clock()
        ended = {trial.trial_id: trial for trial in self._trials if self._is_over(trial)}
        best = self._best(ended.values())
        needed = moment.needed | self._needed() | _goes_on_from(ended[each] for each in best)
        for trial_id in ended.keys() - best - self._done:
            if trial_id in moment.ended:
                self._free_whole(ended[trial_id], needed)
        if self._keeps_all_of_a_trial:
            for trial in self._trials:
                if trial.trial_id in moment.newest and trial.trial_id not in self._done:
                    self._remove(self._older_than(trial, moment.newest[trial.trial_id]), needed)
        if ended.keys() <= best | self._done:
            self._settled_at = num_ended

    def _is_over(self, trial: Trial) -> bool:
        outcome = self._endings.outcomes.get(trial.trial_id)
        return trial.is_finished() and outcome not in (None, Outcome.INTERRUPTED)

    def _needed(self) -> frozenset[str]:
        live = (trial for trial in self._trials if not self._is_over(trial))
        return _goes_on_from(live) | self._scheduler.needed_checkpoints

    def _best(self, ended: Iterable[Trial]) -> set[str]:
        """Return the ids of the trials whose checkpoints are to stay.

        A trial that once is not among them never will be: others come before it, none goes away.
        """
        candidates, points = [], {}
        for trial in ended:
            last = flatten_dict(latest_result(trial))
            values = [last.get(objective.metric) for objective in self._config.objectives]
            outcome = self._endings.outcomes[trial.trial_id]
            feasible = is_feasible(self._config.constraints, last)
            candidates.append(Candidate(trial.trial_id, outcome, values[0], feasible))
            if len(values) > 1 and feasible and outcome is Outcome.COMPLETED:
                points[trial.trial_id] = [float("nan") if it is None else it for it in values]
        objective = self._config.leading_objective
        ranked = best_first(candidates, objective)
        # Where few keep the constraints, the others are what there is to go on with.
        rest = (replace(each, feasible=True) for each in candidates if not each.feasible)
        places = [*ranked, *best_first(rest, objective)][: int(self._config.keep_checkpoints)]
        front = pareto_front(points, self._config.objectives) if points else ()
        return {each.key for each in places} | set(front)

    def _free_whole(self, trial: Trial, needed: Collection[str]) -> None:
        there = self._storage.checkpoints(str(trial.path))
        if there and not any(_is_needed(path, needed) for path in there):
            try:
                self._tell(trial.trial_id)
            except OSError:  # the disk is full, until they are gone
                self._remove(there, needed)
                self._tell(trial.trial_id)
        if self._remove(there, needed):
            self._done.add(trial.trial_id)

    def _older_than(self, trial: Trial, newest: str) -> list[str]:
        """Return a trial's checkpoints before the last ones that a state may name."""
        there = self._storage.checkpoints(str(trial.path))
        return [path for path in there if path <= newest][:-_NEWEST]

    def _remove(self, paths: Iterable[str], needed: Collection[str]) -> bool:
        """Remove checkpoints; return whether none is left that was not removed for need of it."""
        whole = True
        for path in paths:
            if _is_needed(path, needed):
                whole = False
                continue
            try:
                self._storage.remove_checkpoint(path)
            except OSError as error:
                _log.warning("the checkpoint %s cannot be removed: %s", path, error)
        return whole


def _goes_on_from(trials: Iterable[Trial]) -> frozenset[str]:
    """Return the paths of the checkpoints that trials would be restored from."""
    return frozenset(trial.checkpoint.path for trial in trials if trial.checkpoint)


def _is_needed(path: str, needed: Collection[str]) -> bool:
    return path in needed or path.rpartition("/")[0] in needed
