"""Removal of checkpoints that no trial or resume needs."""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from ray.tune import Callback
from ray.tune.utils import flatten_dict

from tune_tf.config import SweepConfig
from tune_tf.constraint import is_feasible
from tune_tf.outcome import Outcome
from tune_tf.ranking import Candidate, best_first, kept_result, pareto_front
from tune_tf.record import Record, RecordedTrial, trials_with_checkpoints
from tune_tf.schedulers.state import ResumeMixin
from tune_tf.sweep.storage import SweepStorage

_log = logging.getLogger(__name__)

_CHECK_EVERY_S: Final = 5.0
KEPT_CHECKPOINTS: Final = 2
"""So many of a trial are kept: a resume takes the last but one if the last is damaged."""


class CheckpointRetention(Callback):
    """Tune callback that removes unneeded checkpoints, by the record.

    It keeps the last two of each trial that goes on and of the best ended ones (with several
    objectives also of the Pareto front), and those that the scheduler may assign to another trial.
    Tune must call the recorder first.
    """

    def __init__(
        self,
        config: SweepConfig,
        storage: SweepStorage,
        scheduler: ResumeMixin,
        record: Record,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._storage = storage
        self._scheduler = scheduler
        self._record = record
        self._clock = clock
        self._checked_s = clock()

    def on_step_end(self, **info: Any) -> None:
        """Remove unneeded checkpoints at intervals."""
        if self._clock() - self._checked_s >= _CHECK_EVERY_S:
            self.remove_unneeded()

    def remove_unneeded(self) -> None:
        """Remove checkpoints that the sweep needs no more."""
        self._checked_s = self._clock()
        trials = trials_with_checkpoints(self._record.folder)
        ended = [trial for trial in trials if not trial.goes_on]
        kept = {trial.trial_id for trial in trials if trial.goes_on} | self._best(ended)
        needed = {
            path
            for it in trials
            if it.trial_id in kept
            for path in it.checkpoints[-KEPT_CHECKPOINTS:]
        }
        needed |= set(map(self._storage.relative, self._scheduler.needed_checkpoints))
        stored = dict.fromkeys(path for trial in trials for path in trial.checkpoints)
        removable = [
            path for path in stored if path not in needed and path.rpartition("/")[0] not in needed
        ]
        bare = [it.trial_id for it in ended if set(it.checkpoints) <= set(removable)]
        try:
            self._note(removable, bare)
        except OSError:  # the disk is full until they are removed
            self._remove(removable)
            self._note(removable, bare)
        self._remove(removable)

    def _best(self, ended: Iterable[RecordedTrial]) -> set[str]:
        """Return the ids of the ended trials whose checkpoints are kept.

        A trial that drops out never returns, as the trials ranked before it never disappear.
        """
        candidates, points = [], {}
        for trial in ended:
            last = kept_result(flatten_dict(dict(trial.last)))
            values = [last.get(objective.metric) for objective in self._config.objectives]
            feasible = is_feasible(self._config.constraints, last)
            candidates.append(Candidate(trial.trial_id, trial.outcome, values[0], feasible))
            if len(values) > 1 and feasible and trial.outcome is Outcome.COMPLETED:
                points[trial.trial_id] = [float("nan") if it is None else it for it in values]
        if self._config.keep_checkpoints == "all":
            return {each.key for each in candidates}
        objective = self._config.leading_objective
        ranked = best_first(candidates, objective)
        infeasible = (replace(each, feasible=True) for each in candidates if not each.feasible)
        ranked += best_first(infeasible, objective)  # they fill the remaining places
        best = ranked[: int(self._config.keep_checkpoints)]
        front = pareto_front(points, self._config.objectives) if points else ()
        return {each.key for each in best} | set(front)

    def _note(self, paths: Sequence[str], bare: Iterable[str]) -> None:
        """Record that checkpoints are removed, of some ended trials all."""
        self._record.begin_step()
        self._record.forget_checkpoints(paths)
        for trial_id in bare:
            self._record.record_checkpoint_removal(trial_id)
        self._record.end_step()

    def _remove(self, paths: Iterable[str]) -> None:
        for path in paths:
            try:
                self._storage.remove_checkpoint(self._storage.path(path))
            except OSError as error:
                _log.warning("the checkpoint %s cannot be removed: %s", path, error)
