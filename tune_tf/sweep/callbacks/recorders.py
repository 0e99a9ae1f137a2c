"""Recorders of a running sweep: its record and its study."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ray.tune import Callback, Checkpoint
from ray.tune.experiment import Trial

from tune_tf.outcome import STOP_CAUSE
from tune_tf.outcome_rules import error_cause
from tune_tf.record import TRIAL_LOG, Record, RecordedTrial, mask_log, trial_results
from tune_tf.secrets import secret_values
from tune_tf.sweep_folder import trial_folder_name
from tune_tf.tracking import MLflowCallback, OutcomeTracker
from tune_tf.tracking.descriptions import reserved_devices
from tune_tf.tune_internals.trial_state import (
    EndedTrials,
    latest_result,
    trial_error,
    trial_number,
)


def trial_name(trial: Trial) -> str:
    """Return the name of a trial from its number, which determines the seed."""
    return trial_folder_name(trial_number(trial))


def trial_cause(trial: Trial) -> str | None:
    """Return the cause of a trial's outcome, if it is known."""
    if trial.status == Trial.ERROR:
        return error_cause(trial_error(trial))
    cause: str | None = latest_result(trial).get(STOP_CAUSE)
    return cause


@dataclass
class _Noted:
    """What the record has of a trial that has not ended."""

    status: str
    tag: str
    failures: int
    config: str  # as text, at the last result
    checkpoint: str | None
    exploits: int


class TrialRecorder(Callback):
    """Tune callback that writes the record of the trials.

    Tune must call the outcome tracker first, and callbacks that change the record before it: all of
    a step of Tune's is one transaction, which ends with :meth:`on_step_end`.

    Args:
        record: The record.
        outcome_tracker: Knows how trials end.
        tracker: Knows MLflow's id of the sweep's run.
        explain: Returns why the scheduler pauses a trial, or goes on with it, if it can tell.
        snapshot: Returns the scheduler's state, if that has changed.
        note_of: Returns what the searcher's sampler noted with a trial, by its id.
    """

    def __init__(
        self,
        record: Record,
        outcome_tracker: OutcomeTracker,
        tracker: MLflowCallback | None = None,
        explain: Callable[[Trial], str | None] = lambda trial: None,
        snapshot: Callable[[], bytes | None] = lambda: None,
        note_of: Callable[[str], Mapping[str, Any]] = lambda trial_id: {},
    ) -> None:
        self._record = record
        self._explain = explain
        self._snapshot = snapshot
        self._note_of = note_of
        self._outcome_tracker = outcome_tracker
        self._tracker = tracker
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
            )
            for each in trials
            if each.goes_on
        }
        self._outcomes = {each.trial_id: each.outcome for each in trials if each.outcome}

    def on_step_begin(self, **info: Any) -> None:
        """Begin a transaction."""
        self._record.begin_step()

    def on_trial_start(self, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Record that a trial starts or continues."""
        self._note(trial)
        self._outcomes.pop(trial.trial_id, None)
        request = trial.placement_group_factory
        self._record.record_start(
            trial.trial_id,
            trial.config,
            devices=reserved_devices(trial),
            resources=getattr(request, "arguments", None),  # of a retry with more memory
            cause=self._explain(trial),
        )

    def on_trial_result(self, trial: Trial, result: dict[str, Any], **info: Any) -> None:
        """Record a result, with the trial's config if that has changed."""
        noted = self._note(trial)
        config = result.get("config", trial.config)  # the scheduler may have given it the next one
        text = _text(config)
        changed = None if text == noted.config else config
        noted.config = text
        self._record.record_result(trial_number(trial), result, changed, noted.exploits)

    def on_trial_complete(self, trial: Trial, **info: Any) -> None:
        """Record how a trial ended."""
        self._record_end(trial)

    on_trial_error = on_trial_complete

    def on_step_end(self, trials: list[Trial], **info: Any) -> None:
        """Record what no hook tells: pauses, saved checkpoints, clones, and some ends."""
        ended = self._ended.take(trials)
        for trial in (*self._ended.unfinished, *ended):
            self._record_changes(trial, trials)
        for trial in ended:
            self._record_end(trial)
        self._record_parent_run()
        if (state := self._snapshot()) is not None:
            self._record.record_pickle("scheduler", state)
        self._record.end_step()

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        """Record the outcomes of trials that were stopped."""
        self._record.begin_step()
        for trial in trials:
            self._record_changes(trial, trials)
            self._record_end(trial)
        self._record_parent_run()
        self._record.end_step()

    def _note(self, trial: Trial) -> _Noted:
        """Return what is recorded of a trial; record a new one."""
        noted = self._noted.get(trial.trial_id)
        if noted is None:
            tag = trial.experiment_tag
            noted = _Noted(Trial.PENDING, tag, 0, _text(trial.config), None, 0)
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

    def _record_parent_run(self) -> None:
        """Record the id of the sweep's MLflow run, which may be created after the last step."""
        if self._tracker is not None and self._tracker.parent_run_id:
            self._record.record_parent_run(self._tracker.parent_run_id)
            self._tracker = None

    def _record_end(self, trial: Trial) -> None:
        trial_id = trial.trial_id
        outcome = self._outcome_tracker.outcomes.get(trial_id)
        if outcome is None or self._outcomes.get(trial_id) is outcome:
            return
        self._outcomes[trial_id] = outcome
        mask_log(self._record.folder / str(trial) / TRIAL_LOG, secret_values())
        error = trial_error(trial) if trial.status == Trial.ERROR else None
        self._record.record_end(trial_id, outcome, trial_cause(trial), error)


def checkpoint_path(trial: Trial, checkpoint: Checkpoint) -> str:
    """Return the path of a checkpoint in the sweep's storage, such as ``trial_00003/...``."""
    return checkpoint.path.removeprefix(f"{trial.storage.experiment_fs_path}/")


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
