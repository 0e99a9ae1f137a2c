"""Recovery of a sweep's state after a crash.

Tune writes its state at intervals: after a kill it is outdated and would run ended trials again.
Recovery updates the last intact state from the record and the checkpoints.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from tune_tf.config import SweepConfig
from tune_tf.errors import SweepConflictError
from tune_tf.outcome import STOP_CAUSE, Outcome
from tune_tf.record import RECORD, RecordedTrial, SweepHistory, recorded_results
from tune_tf.result_keys import TRAINING_ITERATION
from tune_tf.sweep.state.experiment_state import (
    SavedCheckpoint,
    TuneState,
    TuneTrial,
    tune_state_files,
)
from tune_tf.sweep.state.snapshots import STATE_FILES, read_snapshot, snapshot_paths
from tune_tf.sweep.state.storage import SweepStorage
from tune_tf.sweep_folder import trial_folder_name

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
    recorded, losses = _recorded_trials(folder, storage), list[str]()
    state, snapshot = _newest_state(folder, storage, recorded, losses)
    if state is None:
        return Recovery(storage, losses=tuple(losses))
    if not recorded and state.trials:
        raise SweepConflictError(
            f"{folder} cannot be resumed: its record, {RECORD}, is missing or empty; restore it, "
            f"with the files {RECORD}-wal and {RECORD}-shm that belong to it"
        )
    losses += _missing_results(folder, state)
    ended = _bring_up_to_date(folder, storage, state, recorded, losses)
    without_checkpoints = {it.trial_id for it in recorded.values() if it.checkpoints_removed}
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
    return Recovery(
        storage,
        files=state.files(),
        trial_ids=frozenset(trial.trial_id for trial in state.trials),
        ended=ended,
        begun=frozenset(it.trial_id for it in recorded.values() if it.started_s),
        snapshot=snapshot,
        unneeded=tuple(_obsolete_checkpoints(storage, state)),
        losses=tuple(losses),
    )


def _recorded_trials(folder: Path, storage: SweepStorage) -> dict[str, RecordedTrial]:
    """Return the recorded trials by id; one whose last result is saved has ended with that."""
    trials = dict(SweepHistory.read(folder).trials)
    for trial_id, trial in trials.items():
        end = Outcome.of_result(trial.last) if trial.last.get("done") else None
        if trial.outcome is None and end and _has_saved(storage, trial):
            cause = trial.last.get(STOP_CAUSE)
            trials[trial_id] = replace(trial, outcome=end, cause=cause)
    return trials


def _missing_results(folder: Path, state: TuneState) -> Iterator[str]:
    """Yield what the record lacks of the trials' results, as of a copy without the newest ones."""
    for trial in state.trials:
        last = trial.last_result
        reached = int(last.get(TRAINING_ITERATION, 0))
        # Not those of the last one: after a resume, a trial reports earlier ones again.
        results = recorded_results(folder, trial.number)
        kept = max((it[TRAINING_ITERATION] for it in results), default=0)
        if kept < reached and last.get("trial_id") == trial.trial_id:  # else it is a clone's
            yield (
                f"{RECORD} lacks results of trial {trial.number}: it ends at iteration {kept}, but "
                f"the trial had reached {reached}"
            )


def _has_saved(storage: SweepStorage, trial: RecordedTrial) -> bool:
    """Return whether a checkpoint of the last result exists; else the trial must repeat it."""
    stored = storage.checkpoints(storage.path(trial_folder_name(trial.number)))
    return trial.last[TRAINING_ITERATION] in map(storage.iteration_of, stored)


def _bring_up_to_date(
    folder: Path,
    storage: SweepStorage,
    state: TuneState,
    recorded: Mapping[str, RecordedTrial],
    losses: list[str],
) -> dict[str, Outcome]:
    """Add trials and ends that Tune's state lacks; return all outcomes by trial id."""
    by_id = {trial.trial_id: trial for trial in state.trials}
    for known in recorded.values():
        trial = by_id.get(known.trial_id) or state.add(known)
        if not known.outcome or known.outcome is Outcome.INTERRUPTED:
            continue
        if not trial.has_ended:
            trial.end(known)
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
        trial.trial_id: _outcome_of(trial, recorded.get(trial.trial_id))
        for trial in state.trials
        if trial.has_ended
    }


def _outcome_of(trial: TuneTrial, known: RecordedTrial | None) -> Outcome:
    """Return a trial's outcome from the record, its last result or Tune's status."""
    for outcome in (known.outcome if known else None, Outcome.of_result(trial.last_result)):
        if outcome not in (None, Outcome.INTERRUPTED):
            return outcome
    if trial.status == Outcome.ERROR.tune:
        return Outcome.ERROR
    return Outcome.COMPLETED if trial.last_result.get("done") else Outcome.OUT_OF_BUDGET


def _newest_state(
    folder: Path,
    storage: SweepStorage,
    recorded: Mapping[str, RecordedTrial],
    losses: list[str],
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
                f"{path.name}, the previous state, and from the record"
                if path
                else "Ray Tune's own files"
            )
            losses.append(f"{damage[0]}; the sweep resumes from {origin}")
        return state, path
    if not any(trial.started_s for trial in recorded.values()):
        return None, None  # killed before the first state was complete: nothing is lost
    ended = sum(it.outcome not in (None, Outcome.INTERRUPTED) for it in recorded.values())
    problem = damage[0] if damage else "there is no complete state of Ray Tune"
    raise SweepConflictError(
        f"{folder} cannot be resumed: {problem}, and there is no earlier one. What is lost is "
        f"which trials were to continue, and from where; the results of its {len(recorded)} "
        f"trials, {ended} of them ended, are in the record, in the study and in MLflow. Start "
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
    results = {it[TRAINING_ITERATION]: it for it in recorded_results(folder, trial.number)}
    for path in reversed(storage.checkpoints(storage.path(trial.folder_name))):
        iteration = storage.iteration_of(path)
        if (
            iteration is not None
            and iteration in results
            and storage.is_intact(path, thoroughly=True)
        ):
            return trial.register(storage, path, iteration, results[iteration])
    return None


def _obsolete_checkpoints(storage: SweepStorage, state: TuneState) -> Iterator[str]:
    """Yield checkpoints newer than Tune's state, of trials that will write them again.

    A resumed trial may write fewer, and an old one would then be taken for its last.
    """
    needed = {storage.path(saved.folder) for trial in state.trials for saved in trial.checkpoints}
    for trial in state.trials:
        if not trial.has_ended:
            stored = storage.checkpoints(storage.path(trial.folder_name))
            yield from (path for path in stored if path not in needed)
