"""Tune callback that determines the outcome of each trial."""

import pickle
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from ray.tune import Callback, TuneError
from ray.tune.experiment import Trial
from ray.tune.utils import flatten_dict

from tune_tf.objective import Objective
from tune_tf.outcome import STOP_REASON, Outcome, is_finite
from tune_tf.outcome_rules import infer_outcome
from tune_tf.secrets import mask_secrets
from tune_tf.tune_internals.controller import compared_metrics, is_complete, observe_stops
from tune_tf.tune_internals.trial_state import (
    NewTrials,
    latest_result,
    reported_result,
    trial_error,
)

Ending = Literal["completed", "stopped", "unfinished"]
"""How Tune ended a trial: with a hook, without a hook, or not before the end of the sweep."""


class OutcomeTracker(Callback):
    """Tune callback that determines the outcome of each trial.

    A missing stop reason is added to the trial's last result, where the searcher reads it.

    Args:
        objective: A trial has diverged if its metric is not finite; None to use the metrics that
            Tune compares.
        on_open: Called with a trial that starts or continues.
        on_close: Called with an ended trial, its outcome, and the error of a failed one.
    """

    def __init__(
        self,
        objective: Objective | None = None,
        on_open: Callable[[Trial], None] | None = None,
        on_close: Callable[[Trial, Outcome, str | None], None] | None = None,
    ) -> None:
        self._objective = objective
        self._on_open = on_open
        self._on_close = on_close
        self._open: dict[str, Trial] = {}
        self._unstarted: dict[str, Trial] = {}
        self._new = NewTrials()
        self._outcomes: dict[str, Outcome] = {}
        self._earlier: dict[str, Outcome] = {}
        self._started: frozenset[str] = frozenset()

    @property
    def outcomes(self) -> Mapping[str, Outcome]:
        """Outcomes of the ended trials, by Tune's id."""
        return MappingProxyType(self._outcomes)

    def restore_outcomes(self, ended: Mapping[str, Outcome], started: Collection[str]) -> None:
        """Restore the outcomes of earlier sessions.

        ``ended`` has the trials that Tune regards as ended: a killed driver may not have recorded
        them, and Tune calls no hooks for them. ``started`` trials may end without another start.
        """
        self._earlier, self._started = dict(ended), frozenset(started)

    def track(self, trial: Trial) -> None:
        """Open a trial, unless it is open or has ended."""
        has_ended = trial.trial_id in self._outcomes and trial.is_finished()
        if has_ended or trial.trial_id in self._open:
            return
        self._outcomes.pop(trial.trial_id, None)
        self._unstarted.pop(trial.trial_id, None)
        self._open[trial.trial_id] = trial
        if self._on_open is not None:
            self._on_open(trial)

    def setup(self, *args: Any, **info: Any) -> None:
        """Start observing which trials a stopper ends."""
        observe_stops()

    def on_trial_start(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """Open the trial."""
        self.track(trial)

    def on_trial_result(
        self,
        iteration: int,
        trials: list[Trial],
        trial: Trial,
        result: dict[str, Any],
        **info: Any,
    ) -> None:
        """Write the stop reason into a last result."""
        self.track(trial)
        if result.get("done"):
            last = flatten_dict(result)
            metrics = self._diverging_metrics()
            outcome = infer_result_outcome(last, own_end=is_complete(trial, last), metrics=metrics)
            result[STOP_REASON] = outcome.value

    def on_trial_complete(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """Determine the outcome of an ended trial."""
        self._end(trial, "completed")

    on_trial_error = on_trial_complete

    def on_step_begin(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """Add the outcomes of earlier sessions."""
        self._add_earlier_outcomes(trials)

    def on_step_end(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """Find the trials that Tune stopped without a hook, as at the end of a budget."""
        for trial in self._new.take(trials):
            if trial.trial_id not in self._open and trial.trial_id not in self._outcomes:
                self._unstarted[trial.trial_id] = trial
        for trial in [trial for trial in self._open.values() if trial.is_finished()]:
            self._end(trial, "stopped")
        for trial in [trial for trial in self._unstarted.values() if trial.is_finished()]:
            del self._unstarted[trial.trial_id]
            if self._has_started(trial):
                self._end(trial, "stopped")
            else:
                self._outcomes[trial.trial_id] = Outcome.OUT_OF_BUDGET

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        """Determine the outcomes of the trials left unfinished."""
        self._add_earlier_outcomes(trials)  # Tune makes no step if no trial is left to run
        for trial in trials:
            # Tune's cleanup has stopped them, including those about to start.
            if trial.trial_id not in self._outcomes:
                self._end(trial, "unfinished")

    def get_state(self) -> dict[str, Any]:
        """Return the outcomes, for a resumed sweep."""
        return {"ended": {key: outcome.value for key, outcome in self._outcomes.items()}}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore the outcomes of an interrupted sweep."""
        self._unstarted.clear()
        self._new = NewTrials()
        self._outcomes = {key: Outcome(tag) for key, tag in state.get("ended", {}).items()}

    def _add_earlier_outcomes(self, trials: Sequence[Trial]) -> None:
        earlier, self._earlier = self._earlier, {}
        for trial in trials if earlier else ():
            outcome = earlier.get(trial.trial_id)
            if outcome is None or trial.trial_id in self._outcomes:
                continue
            if self._has_started(trial):
                self._end(trial, "stopped", outcome)
            else:
                self._outcomes[trial.trial_id] = outcome

    def _has_started(self, trial: Trial) -> bool:
        return bool(latest_result(trial)) or trial.trial_id in self._started

    def _end(self, trial: Trial, ending: Ending, earlier: Outcome | None = None) -> None:
        self.track(trial)
        if trial.num_failures:
            _mask_error_files(trial)
        error = trial_error(trial) if trial.status == Trial.ERROR else None
        last = flatten_dict(reported_result(trial))
        outcome = earlier or infer_trial_outcome(
            ending,
            last,
            own_end=bool(last) and is_complete(trial, last),
            error=error,
            metrics=self._diverging_metrics(),
        )
        self._open.pop(trial.trial_id, None)
        self._outcomes[trial.trial_id] = outcome
        if self._on_close is not None:
            self._on_close(trial, outcome, error)

    def _diverging_metrics(self) -> Collection[str]:
        return {self._objective.metric} if self._objective else compared_metrics()


def infer_result_outcome(
    result: Mapping[str, Any], *, own_end: bool, metrics: Collection[str] = ()
) -> Outcome:
    """Infer the outcome of a trial from its last result.

    ``own_end`` is whether the trial ended by itself rather than being stopped. It has diverged if
    one of ``metrics`` is not finite.
    """
    recorded = Outcome.of_result(result)  # by one who has looked at the metrics
    finite = recorded is not None or all(is_finite(result.get(name, 0.0)) for name in metrics)
    end = Outcome.COMPLETED if own_end else Outcome.PRUNED
    return infer_outcome(end, recorded=recorded, finite=finite)


def infer_trial_outcome(
    ending: Ending,
    last_result: Mapping[str, Any],
    *,
    own_end: bool,
    error: str | None = None,
    metrics: Collection[str] = (),
) -> Outcome:
    """Infer the outcome of a trial that Tune no longer runs.

    ``last_result`` is empty if the trial never reported; ``own_end`` and ``metrics`` are those of
    :func:`infer_result_outcome`; ``error`` is the text of a failed trial's error, maybe empty.
    """
    if error is not None:
        return infer_outcome(Outcome.ERROR, error=error)
    if ending == "unfinished":
        return Outcome.INTERRUPTED  # regardless of its result: a resume continues it
    if last_result.get("done"):  # no stop reason: a function trainable returned
        return infer_result_outcome(last_result, own_end=True, metrics=metrics)
    if ending == "stopped":
        return Outcome.OUT_OF_BUDGET
    # Only schedulers stop a trial between two results.
    return infer_result_outcome(last_result, own_end=own_end)


def _mask_error_files(trial: Trial) -> None:
    """Mask secrets in the error files that Tune wrote for a failed trial.

    Tune copies the files from a local folder to the storage; a remote storage gets its copy after
    this call. A pickled error with a secret is replaced by one with the masked text, since an
    arbitrary object cannot be masked.
    """
    names = [Path(path).name for path in (trial.error_file, trial.pickled_error_file) if path]
    folders = {Path(folder) for folder in (trial.local_path, trial.path) if folder}
    for path in (folder / name for folder in folders for name in names):
        if path.is_file():
            _mask_error_file(path)


def _mask_error_file(path: Path) -> None:
    text = path.read_text(errors="replace")
    masked_text = mask_secrets(text)
    if masked_text == text:
        return
    if path.suffix != ".pkl":
        path.write_text(masked_text)
        return
    beside = path.with_suffix(".txt")
    error = mask_secrets(beside.read_text(errors="replace")) if beside.is_file() else ""
    path.write_bytes(pickle.dumps(TuneError(error or "an error that contained a secret")))
