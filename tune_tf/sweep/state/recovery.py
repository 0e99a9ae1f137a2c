"""Recovery of a sweep's state after a crash.

Tune writes its state at intervals: after a kill it is outdated and would run ended trials again.
Recovery updates the last intact state from the event log and the trials' files.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tune_tf.config import SweepConfig
from tune_tf.errors import SweepConflictError
from tune_tf.events import EventHistory, TrialEvents
from tune_tf.inspection.reported_results import RESULTS, read_last_result, read_results
from tune_tf.outcome import STOP_CAUSE, Outcome
from tune_tf.sweep.state.experiment_state import (
    SavedCheckpoint,
    TuneState,
    TuneTrial,
    tune_state_files,
)
from tune_tf.sweep.state.snapshots import STATE_FILES, read_snapshot, snapshot_paths
from tune_tf.sweep.state.storage import SweepStorage

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Recovery:
    """State to resume from; nothing on disk changes before :meth:`write`."""

    storage: SweepStorage  # in which Tune looks for its state
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """Tune's state by file name; empty to start with the first trial."""
    trial_ids: frozenset[str] = frozenset()
    ended: Mapping[str, Outcome] = field(default_factory=dict)  # by trial id
    begun: frozenset[str] = frozenset()  # trial ids
    snapshot: Path | None = None  # archive of the state; None if from Tune's own files
    unneeded: tuple[str, ...] = ()  # paths of checkpoints that no trial resumes from
    losses: tuple[str, ...] = ()  # descriptions of lost data, one sentence each

    @property
    def resumes(self) -> bool:
        """Whether a state to resume from exists."""
        return bool(self.files)

    def write(self) -> None:
        """Write the state where Tune looks for it, remove older ones, and log the losses."""
        for sentence in self.losses:
            _log.warning("%s", sentence)
        for path in self.unneeded:
            with suppress(OSError):
                self.storage.remove_checkpoint(path)
        for pattern in STATE_FILES:
            for name in self.storage.files(pattern):
                if name not in self.files:
                    self.storage.remove(name)
        for name, content in self.files.items():
            self.storage.write(name, content)


def recover(folder: Path, config: SweepConfig) -> Recovery:
    """Return the state to resume a sweep from; the folder is only read.

    Raises:
        SweepConflictError: No state is intact; the message says what is left and what to do.
        InvalidSettingsError: The remote storage cannot be reached.
    """
    storage = SweepStorage.of(folder, config)
    history, losses = EventHistory.read(folder), list[str]()
    losses += _add_unlogged_trials(folder, storage, history)
    state, snapshot = _newest_state(folder, storage, history, losses)
    if state is None:
        return Recovery(storage, losses=tuple(losses))
    ended = _bring_up_to_date(folder, storage, state, history, losses)
    all_events = history.trials.values()
    without_checkpoints = {each.trial_id for each in all_events if each.checkpoints_removed}
    for trial in state.trials:
        trial.set_max_failures(config.max_failures)
        if not trial.has_ended:
            _repair_trial(folder, storage, trial, losses)
        elif trial.trial_id in without_checkpoints:
            trial.keep_checkpoints(
                [each for each in trial.checkpoints if storage.is_intact(storage.path(each.folder))]
            )
        elif trial.checkpoints and not storage.is_intact(storage.path(trial.checkpoints[0].folder)):
            losses.append(
                f"{trial.checkpoints[0].folder}, the last checkpoint of a trial that has ended, "
                "is damaged or missing: its model cannot be exported"
            )
        losses += _lost_results(folder, trial)
    return Recovery(
        storage,
        files=state.files(),
        trial_ids=frozenset(trial.trial_id for trial in state.trials),
        ended=ended,
        begun=frozenset(events.trial_id for events in all_events if events.started_s),
        snapshot=snapshot,
        unneeded=tuple(_obsolete_checkpoints(storage, state)),
        losses=tuple(losses),
    )


def _add_unlogged_trials(
    folder: Path, storage: SweepStorage, history: EventHistory
) -> Iterator[str]:
    """Add to the history what only the trials' folders hold; yield the log's losses."""
    for path in sorted(folder.glob("trial_*")):
        last = dict(read_last_result(path / RESULTS))
        if not last:
            continue
        trial_id, config = str(last.get("trial_id", path.name)), last.pop("config", {})
        events = history.trials.get(trial_id)
        if events is None:
            number = int(path.name.rpartition("_")[2])
            events = history.trials[trial_id] = TrialEvents(trial_id, number, config)
            yield f"the sweep's event log is damaged: trial {number} is known only from its folder"
        outcome = Outcome.of_result(last) if last.get("done") else None
        if events.outcome is None and outcome is not None and _has_saved(storage, path.name, last):
            events.outcome, events.cause, events.last = outcome, last.get(STOP_CAUSE), last


def _has_saved(storage: SweepStorage, trial: str, last: Mapping[str, Any]) -> bool:
    """Return whether a checkpoint of the last report exists; else the trial must repeat it."""
    iterations = map(storage.iteration_of, storage.checkpoints(storage.path(trial)))
    return last["training_iteration"] in iterations


def _bring_up_to_date(
    folder: Path,
    storage: SweepStorage,
    state: TuneState,
    history: EventHistory,
    losses: list[str],
) -> dict[str, Outcome]:
    """Add ends of trials that Tune's state lacks; return all outcomes by trial id."""
    by_id = {trial.trial_id: trial for trial in state.trials}
    numbers = {trial.number for trial in state.trials}
    for events in history.trials.values():
        if events.trial_id not in by_id and events.number not in numbers:
            by_id[events.trial_id] = state.add(events)
        trial = by_id.get(events.trial_id)
        if not events.outcome or events.outcome is Outcome.INTERRUPTED:
            continue
        if trial and not trial.has_ended:
            trial.end(events, _last_of(folder / trial.folder_name, events))
            saved = _newest_stored(folder, storage, trial)
            if saved:
                trial.keep_checkpoints([saved])
            stored = storage.checkpoints(storage.path(trial.folder_name))
            if stored and (saved is None or str(saved.folder) != storage.relative(stored[-1])):
                model = f"that of iteration {saved.iteration}" if saved else "lost"
                losses.append(
                    f"{storage.relative(stored[-1])}, the last checkpoint of a trial that has "
                    f"ended, is damaged: its model is {model}"
                )
    return {
        trial.trial_id: _outcome_of(trial, history.trials.get(trial.trial_id))
        for trial in state.trials
        if trial.has_ended
    }


def _outcome_of(trial: TuneTrial, events: TrialEvents | None) -> Outcome:
    """Return a trial's outcome from the event log, its last result or Tune's status."""
    for outcome in (events.outcome if events else None, Outcome.of_result(trial.last_result)):
        if outcome not in (None, Outcome.INTERRUPTED):
            return outcome
    if trial.status == Outcome.ERROR.tune:
        return Outcome.ERROR
    return Outcome.COMPLETED if trial.last_result.get("done") else Outcome.OUT_OF_BUDGET


def _newest_state(
    folder: Path, storage: SweepStorage, history: EventHistory, losses: list[str]
) -> tuple[TuneState | None, Path | None]:
    """Return the newest intact state and its archive."""
    damage = []
    for path, read in _saved_states(folder, storage):
        try:
            state = TuneState(read())
        except (ValueError, OSError) as error:
            damage.append(str(error))
            continue
        if damage:
            origin = (
                f"{path.name}, the previous state, and from the events logged since"
                if path
                else "Ray Tune's own files"
            )
            losses.append(f"{damage[0]}; the sweep resumes from {origin}")
        return state, path
    if not history.trials:
        return None, None  # killed before the first state was complete: nothing is lost
    ended = sum(
        events.outcome not in (None, Outcome.INTERRUPTED) for events in history.trials.values()
    )
    problem = damage[0] if damage else "there is no complete state of Ray Tune"
    raise SweepConflictError(
        f"{folder} cannot be resumed: {problem}, and there is no earlier one. What is lost is "
        f"which trials were to continue, and from where; the results of its {len(history.trials)} "
        f"trials, {ended} of them ended, are in their folders, in the study and in MLflow. Start "
        "another sweep that learns from them: tune-tf run FILE "
        f"searcher.warm_start_from={folder}"
    )


def _saved_states(
    folder: Path, storage: SweepStorage
) -> Iterator[tuple[Path | None, Callable[[], Mapping[str, bytes]]]]:
    """Yield archives of the state with their readers, newest first, then Tune's own files."""
    for path in snapshot_paths(folder):
        yield path, partial(read_snapshot, path)
    for files in tune_state_files(storage, STATE_FILES):
        yield None, partial(dict, files)


def _last_of(folder: Path, events: TrialEvents) -> Mapping[str, Any]:
    """Return the last result of an ended trial from its file or the event log."""
    last = read_last_result(folder / RESULTS)
    iteration = events.last.get("training_iteration", 0)
    if last.get("training_iteration", 0) < iteration:
        return {**events.last, "config": dict(events.config)}
    return last


def _lost_results(folder: Path, trial: TuneTrial) -> Iterator[str]:
    """Yield lost results of ``result.json`` that the trial will not report again."""
    if trial.has_ended:
        reached = int(trial.last_result.get("training_iteration", 0))
    else:
        reached = trial.checkpoints[0].iteration if trial.checkpoints else 0
    stored = max(_results(folder, trial), default=0)
    if stored < reached:
        yield (
            f"{trial.folder_name}/{RESULTS} is damaged: it ends at iteration {stored}, but the "
            f"trial had reached {reached}"
        )


def _repair_trial(folder: Path, storage: SweepStorage, trial: TuneTrial, losses: list[str]) -> None:
    """Make an unfinished trial resume from its newest intact checkpoint."""
    checkpoints = trial.checkpoints
    intact = [each for each in checkpoints if storage.is_intact(storage.path(each.folder))]
    while intact and not storage.is_intact(storage.path(intact[0].folder), thoroughly=True):
        del intact[0]
    if not intact and (saved := _newest_stored(folder, storage, trial)):
        intact = [saved]
    if intact != checkpoints:
        trial.keep_checkpoints(intact)
    stored = storage.checkpoints(storage.path(trial.folder_name))
    if not checkpoints and not stored:
        return
    newest = str(checkpoints[0].folder) if checkpoints else storage.relative(stored[-1])
    if intact and str(intact[0].folder) == newest:
        return
    problem = f"{newest}, the newest checkpoint, is damaged or missing: the trial "
    if intact:
        losses.append(f"{problem}resumes from {intact[0].folder}, iteration {intact[0].iteration}")
    else:
        losses.append(f"{problem}starts over")


def _newest_stored(folder: Path, storage: SweepStorage, trial: TuneTrial) -> SavedCheckpoint | None:
    """Return the newest intact checkpoint with a known result, even if unknown to Tune."""
    results = _results(folder, trial)
    for path in reversed(storage.checkpoints(storage.path(trial.folder_name))):
        iteration = storage.iteration_of(path)
        if iteration in results and storage.is_intact(path, thoroughly=True):
            return trial.register(storage, path, iteration, results[iteration])
    return None


def _results(folder: Path, trial: TuneTrial) -> dict[int, Mapping[str, Any]]:
    """Return the reported results of a trial by iteration."""
    return {
        iteration: report
        for report in read_results(folder / trial.folder_name / RESULTS)
        if isinstance(iteration := report.get("training_iteration"), int)
    }


def _obsolete_checkpoints(storage: SweepStorage, state: TuneState) -> Iterator[str]:
    """Yield checkpoints newer than Tune's state, of trials that will write them again.

    A resumed trial may write fewer, and an old one would then be taken for its last.
    """
    needed = {storage.path(saved.folder) for trial in state.trials for saved in trial.checkpoints}
    for trial in state.trials:
        if not trial.has_ended:
            stored = storage.checkpoints(storage.path(trial.folder_name))
            yield from (path for path in stored if path not in needed)
