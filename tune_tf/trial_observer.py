"""Tune callback that records what happens to the trials, and determines how each of them ended."""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from ray.tune import Callback, Checkpoint
from ray.tune.experiment import Trial
from ray.tune.utils import flatten_dict

from tune_tf.objective import Objective
from tune_tf.outcome import MLFLOW_RUN_ID, STOP_CAUSE, STOP_REASON, Outcome, is_finite
from tune_tf.outcome_rules import error_cause, infer_outcome
from tune_tf.record import TRIAL_LOG, Record, RecordedTrial, mask_log, trial_results
from tune_tf.secrets import secret_values
from tune_tf.tune_internals.controller import compared_metrics, is_complete, observe_stops
from tune_tf.tune_internals.trial_state import (
    EndedTrials,
    mask_error_files,
    reported_result,
    trial_error,
    trial_number,
)

Ending = Literal["completed", "stopped", "unfinished"]
"""How Tune ended a trial: with a hook, without a hook, or not before the end of the sweep."""


@dataclass
class _Noted:
    """What the record has of a trial that has not ended."""

    status: str
    tag: str
    failures: int
    config: str  # as text, at the last result
    checkpoint: str | None
    exploits: int
    has_started: bool


class TrialObserver(Callback):
    """Tune callback that writes the record of the trials.

    It determines how each trial ended: the schedulers, the stopper and the trainable write it into
    the trial's last result, and what others do is inferred. A missing stop reason is added to that
    result, where the searcher reads it.

    Callbacks that add to results or to the record come before it: all of a step of Tune's is one
    transaction, which ends with :meth:`on_step_end`.

    Args:
        record: The record, in a session.
        objective: A trial has diverged if its metric is not finite; None to use the metrics that
            Tune compares.
        explain: Returns why the scheduler pauses a trial, or goes on with it, if it can tell.
        snapshot: Returns the scheduler's state, if that has changed.
        note_of: Returns what the searcher's sampler noted with a trial, by its id.
        run_id: Returns MLflow's id of the run of a trial, by its id, or of the sweep, by an empty
            one, as soon as there is one.
    """

    def __init__(
        self,
        record: Record,
        objective: Objective | None = None,
        *,
        explain: Callable[[Trial], str | None] = lambda trial: None,
        snapshot: Callable[[], bytes | None] = lambda: None,
        note_of: Callable[[str], Mapping[str, Any]] = lambda trial_id: {},
        run_id: Callable[[str], str | None] = lambda trial_id: None,
    ) -> None:
        self._record = record
        self._objective = objective
        self._explain = explain
        self._snapshot = snapshot
        self._note_of = note_of
        self._run_id = run_id
        self._recorded_run_id: str | None = None
        self._ended = EndedTrials()
        trials = record.history.trials.values()
        self._noted = {
            each.trial_id: _Noted(
                Trial.PAUSED if each.state == "paused" else Trial.PENDING,
                each.tag,
                each.failures,
                _text(_reported_config(record.folder, each)),
                each.checkpoints[-1] if each.checkpoints else None,
                each.exploits,
                each.started_s is not None,
            )
            for each in trials
            if each.goes_on
        }
        self._outcomes = {
            each.trial_id: each.outcome for each in trials if each.outcome and not each.goes_on
        }

    @property
    def outcomes(self) -> Mapping[str, Outcome]:
        """Outcomes of the ended trials, by Tune's id."""
        return MappingProxyType(self._outcomes)

    def setup(self, *args: Any, **info: Any) -> None:
        """Start observing which trials a stopper ends."""
        observe_stops()

    def on_step_begin(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """Begin a transaction."""
        self._record.begin_step()

    def on_trial_start(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """Record that a trial starts or continues."""
        self._note(trial).has_started = True
        self._outcomes.pop(trial.trial_id, None)
        request = trial.placement_group_factory
        self._record.record_start(
            trial.trial_id,
            trial.config,
            devices=reserved_devices(trial),
            resources=getattr(request, "arguments", None),  # of a retry with more memory
            cause=self._explain(trial),
        )

    def on_trial_result(
        self,
        iteration: int,
        trials: list[Trial],
        trial: Trial,
        result: dict[str, Any],
        **info: Any,
    ) -> None:
        """Add a missing stop reason and the run's id to a result, and record it."""
        noted = self._note(trial)
        if run_id := self._run_id(trial.trial_id):
            result[MLFLOW_RUN_ID] = run_id
        if result.get("done"):
            last = flatten_dict(result)
            own_end, metrics = is_complete(trial, last), self._diverging_metrics()
            outcome = infer_result_outcome(last, own_end=own_end, metrics=metrics)
            result[STOP_REASON] = outcome.value
        config = result.get("config", trial.config)  # the scheduler may have given it the next one
        text = _text(config)
        changed = None if text == noted.config else config
        noted.config = text
        self._record.record_result(trial_number(trial), result, changed, noted.exploits)

    def on_trial_complete(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """Record how a trial ended."""
        self._end(trial, "completed")

    on_trial_error = on_trial_complete

    def on_step_end(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """Record what no hook tells: pauses, saved checkpoints, clones, and some ends."""
        ended = self._ended.take(trials)
        for trial in (*self._ended.unfinished, *ended):
            self._record_changes(trial, trials)
        for trial in ended:
            if trial.trial_id not in self._outcomes:
                self._end(trial, "stopped")  # as at the end of a budget
        self._record_run_id()
        if (state := self._snapshot()) is not None:
            self._record.record_pickle("scheduler", state)
        self._record.end_step()

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        """Record the outcomes of the trials left unfinished."""
        self._record.begin_step()
        for trial in trials:
            self._record_changes(trial, trials)
            # Tune's cleanup has stopped them, including those about to start.
            if trial.trial_id not in self._outcomes:
                self._end(trial, "unfinished")
        self._record_run_id()
        self._record.end_step()

    def _note(self, trial: Trial) -> _Noted:
        """Return what is recorded of a trial; record a new one."""
        noted = self._noted.get(trial.trial_id)
        if noted is None:
            tag = trial.experiment_tag
            noted = _Noted(Trial.PENDING, tag, 0, _text(trial.config), None, 0, has_started=False)
            self._noted[trial.trial_id] = noted
            self._record.record_creation(
                trial.trial_id,
                trial_number(trial),
                trial.config,
                name=str(trial),
                tag=tag,
                note=self._note_of(trial.trial_id),
            )
        return noted

    def _record_changes(self, trial: Trial, trials: list[Trial]) -> None:
        """Record what has changed of a trial since the step before."""
        if trial.trial_id in self._outcomes and trial.trial_id not in self._noted:
            return  # it ended in an earlier session
        noted, trial_id = self._note(trial), trial.trial_id
        if trial.status != noted.status:
            noted.status = trial.status
            if trial.status == Trial.PAUSED:
                self._record.record_pause(trial_id, self._explain(trial))
            elif trial.status == Trial.PENDING:
                self._record.record_waiting(trial_id)
        if (trial.experiment_tag, trial.num_failures) != (noted.tag, noted.failures):
            noted.tag, noted.failures = trial.experiment_tag, trial.num_failures
            self._record.record_progress(trial_id, tag=noted.tag, failures=noted.failures)
        saved = trial.latest_checkpoint_result
        path = checkpoint_path(trial, saved.checkpoint) if saved and saved.checkpoint else None
        if path is not None and path != noted.checkpoint:
            noted.checkpoint = path
            self._record.record_checkpoint(trial_number(trial), path, saved.metrics)
            if (donor := _owner(path, trials)) is not None and donor is not trial:
                noted.exploits += 1
                self._record.record_clone(
                    trial_id, trial.config, noted.exploits, cloned_from=donor.trial_id
                )

    def _end(self, trial: Trial, ending: Ending) -> None:
        """Determine and record how a trial ended."""
        trial_id, noted = trial.trial_id, self._note(trial)
        if trial.num_failures:
            mask_error_files(trial)
        error = trial_error(trial) if trial.status == Trial.ERROR else None
        last = flatten_dict(reported_result(trial))
        recorded = Outcome.of_result(trial.run_metadata.last_result)
        if ending == "stopped" and not last and not noted.has_started:
            outcome = Outcome.OUT_OF_BUDGET
        elif ending == "completed" and not last and recorded and error is None:
            outcome = recorded  # by the scheduler, of a trial that was to start over
        else:
            outcome = infer_trial_outcome(
                ending,
                last,
                own_end=bool(last) and is_complete(trial, last),
                error=error,
                metrics=self._diverging_metrics(),
            )
        self._outcomes[trial_id] = outcome
        mask_log(self._record.folder / str(trial) / TRIAL_LOG, secret_values())
        self._record.record_end(trial_id, outcome, trial_cause(trial), error)

    def _record_run_id(self) -> None:
        """Record the id of the sweep's MLflow run, which may be made after the last step."""
        run_id = self._run_id("")
        if run_id is not None and run_id != self._recorded_run_id:
            self._recorded_run_id = run_id
            self._record.record_parent_run(run_id)

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


def trial_cause(trial: Trial) -> str | None:
    """Return the cause of a trial's outcome, if it is known."""
    if trial.status == Trial.ERROR:
        return error_cause(trial_error(trial))
    cause: str | None = (trial.run_metadata.last_result or {}).get(STOP_CAUSE)
    return cause


def reserved_devices(trial: Trial) -> str:
    """Return what a trial reserves in all, such as ``2 CPU, 1 GPU``."""
    request = trial.placement_group_factory
    amounts = request.required_resources if request is not None else {}
    return ", ".join(f"{amount:g} {name}" for name, amount in amounts.items() if amount)


def checkpoint_path(trial: Trial, checkpoint: Checkpoint) -> str:
    """Return the path of a checkpoint in the sweep's storage, such as ``trial_00003/...``."""
    path: str = checkpoint.path
    return path.removeprefix(f"{trial.storage.experiment_fs_path}/")


def _owner(path: str, trials: Sequence[Trial]) -> Trial | None:
    """Return the trial in whose folder a checkpoint lies."""
    folder = path.partition("/")[0]
    return next((each for each in trials if each.relative_logdir == folder), None)


def _reported_config(folder: Path, trial: RecordedTrial) -> Mapping[str, Any]:
    """Return the config of a trial's last result."""
    results = trial_results(folder, trial.number) if trial.exploits else ()
    changed = (result.config for result in reversed(results) if result.config is not None)
    return next(changed, trial.suggested)


def _text(config: Mapping[str, Any]) -> str:
    """Return a config as text, to compare it."""
    return json.dumps(config, default=str)
