"""How the trials of a running sweep end."""

# Hooks take what Tune hands them.

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ray.tune import Callback
from ray.tune.experiment import Trial
from ray.tune.result import TRAINING_ITERATION, TRIAL_ID
from ray.tune.utils import flatten_dict

from tune_tf.objective import Objective
from tune_tf.outcome import STOP_REASON, Outcome
from tune_tf.secrets import masked
from tune_tf.tracking import run_outcome
from tune_tf.tracking.error_files import mask_error_files
from tune_tf.tune_internals.trial_ends import compared_metrics, is_own_end, observe_stops


class OutcomeTracker(Callback):
    """Notes how each trial ends, and writes the reason into its last result if it is missing.

    The searcher reads it there: see :mod:`tune_tf.outcome`.

    Args:
        objective: Tells a trial that diverged; None to ask Tune which metric it compares.
    """

    def __init__(self, objective: Objective | None = None) -> None:
        self._objective = objective
        self._open: dict[str, Trial] = {}
        self._unstarted: dict[str, Trial] = {}
        self._num_noticed = 0
        self._outcomes: dict[str, Outcome] = {}
        self._earlier: dict[str, Outcome] = {}
        self._begun: frozenset[str] = frozenset()

    @property
    def outcomes(self) -> Mapping[str, Outcome]:
        """How trials ended, by Tune's id."""
        return MappingProxyType(self._outcomes)

    def goes_on(self, ended: Mapping[str, Outcome], begun: Collection[str]) -> None:
        """Take over what became of trials in earlier sessions.

        Args:
            ended: How the trials ended that Tune has as ended, by id. A killed driver may not have
                come to note that here, and Tune says no more of them.
            begun: Those that were started, which may end now without being started again.
        """
        self._earlier, self._begun = dict(ended), frozenset(begun)

    def trial_opened(self, trial: Trial) -> None:
        """Do what is to be done when a trial begins, or goes on; for subclasses."""

    def trial_ended(self, trial: Trial, outcome: Outcome, error: str | None) -> None:
        """Do what is to be done when a trial has ended; for subclasses.

        Args:
            trial: The trial.
            outcome: How it ended.
            error: Text of its error, if it failed.
        """

    def setup(self, *args: Any, **info: Any) -> None:
        """Begin to note which trials the scheduler does not end."""
        observe_stops()

    def on_trial_start(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """Note that a trial runs."""
        self._track(trial)

    def on_trial_result(
        self,
        iteration: int,
        trials: list[Trial],
        trial: Trial,
        result: dict[str, Any],
        **info: Any,
    ) -> None:
        """Write the reason of a stop into the result."""
        self._track(trial)
        if result.get("done"):
            flat_result = flatten_dict(result)
            outcome = run_outcome.outcome_of_result(
                flat_result, own_end=is_own_end(trial, flat_result), metrics=self._judged()
            )
            result[STOP_REASON] = outcome.value

    def on_trial_complete(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """Note that a trial ended."""
        self._end(trial, "completed")

    def on_trial_error(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """Note that a trial failed for good."""
        self._end(trial, "completed")

    def on_step_begin(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """Note the trials that ended in earlier sessions."""
        self._note_earlier(trials)

    def on_step_end(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """Note the trials that Tune stopped without a word, as it does at the end of a budget."""
        for trial in trials[self._num_noticed :]:
            if trial.trial_id not in self._open and trial.trial_id not in self._outcomes:
                self._unstarted[trial.trial_id] = trial
        self._num_noticed = len(trials)
        for trial in [trial for trial in self._open.values() if trial.is_finished()]:
            self._end(trial, "stopped")
        for trial in [trial for trial in self._unstarted.values() if trial.is_finished()]:
            del self._unstarted[trial.trial_id]
            if self._has_begun(trial):
                self._end(trial, "stopped")
            else:
                self._outcomes[trial.trial_id] = Outcome.OUT_OF_BUDGET

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        """Note what became of the trials that have not ended by themselves."""
        self._note_earlier(trials)  # Tune makes no step where none is left to run
        for trial in trials:
            # Tune's own cleaning up has stopped them, also those that were about to start.
            if trial.trial_id not in self._outcomes:
                self._end(trial, "unfinished")

    def get_state(self) -> dict[str, Any] | None:
        """Return what a resumed sweep needs."""
        return {"ended": {key: outcome.value for key, outcome in self._outcomes.items()}}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take up a sweep that was interrupted, or start one."""
        self._unstarted.clear()
        self._num_noticed = 0
        self._outcomes = {key: Outcome.of_tag(tag) for key, tag in state.get("ended", {}).items()}

    def _track(self, trial: Trial) -> None:
        over = trial.trial_id in self._outcomes and trial.is_finished()
        if over or trial.trial_id in self._open:
            return
        self._outcomes.pop(trial.trial_id, None)
        self._unstarted.pop(trial.trial_id, None)
        self._open[trial.trial_id] = trial
        self.trial_opened(trial)

    def _note_earlier(self, trials: Sequence[Trial]) -> None:
        earlier, self._earlier = self._earlier, {}
        for trial in trials if earlier else ():
            outcome = earlier.get(trial.trial_id)
            if outcome is None or trial.trial_id in self._outcomes:
                continue
            if self._has_begun(trial):
                self._end(trial, "stopped", outcome)
            else:
                self._outcomes[trial.trial_id] = outcome

    def _has_begun(self, trial: Trial) -> bool:
        return bool(latest_result(trial)) or trial.trial_id in self._begun

    def _end(self, trial: Trial, seen: run_outcome.Seen, known: Outcome | None = None) -> None:
        self._track(trial)
        if trial.num_failures:
            mask_error_files(trial)
        error = error_of(trial) if trial.status == Trial.ERROR else None
        last = flatten_dict(own_report(trial))
        outcome = known or run_outcome.outcome_of_trial(
            seen,
            last,
            status=trial.status,
            own_end=bool(last) and is_own_end(trial, last),
            error=error,
            metrics=self._judged(),
        )
        self._open.pop(trial.trial_id, None)
        self._outcomes[trial.trial_id] = outcome
        self.trial_ended(trial, outcome, error)

    def _judged(self) -> Collection[str]:
        return {self._objective.metric} if self._objective else compared_metrics()


def latest_result(trial: Trial) -> dict[str, Any]:
    """Return what a trial reported last; empty if it never did.

    Unlike ``trial.last_result`` this never waits for an actor that is still starting, and leaves
    the trial as it is.
    """
    last: dict[str, Any] = trial.run_metadata.last_result
    return last if last and TRAINING_ITERATION in last else {}


def own_report(trial: Trial) -> dict[str, Any]:
    """Return what a trial itself reported last; empty if it never did.

    A trial that went on from another one's checkpoint has, until it reports, the other's result.
    """
    last = latest_result(trial)
    return last if last.get(TRIAL_ID, trial.trial_id) == trial.trial_id else {}


def error_of(trial: Trial) -> str:
    """Return the text of a failed trial's error, without secrets; empty if Tune kept none."""
    path = Path(trial.error_file) if trial.error_file else None
    if path is None or not path.is_file():
        return ""
    return masked(path.read_text(errors="replace"))
