"""Resume of a sweep from its record: which trials go on, and from which checkpoints.

A resume is another ``tune.run``: Tune's own state is not read. Trials that have ended are told to
searcher and scheduler; those that go on are made again, with their numbers, ids and seeds.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any

from ray.tune import Checkpoint, PlacementGroupFactory
from ray.tune.experiment import Trial

from tune_tf.config import SweepConfig
from tune_tf.errors import SweepConflictError
from tune_tf.record import (
    RECORD,
    Record,
    RecordedTrial,
    SweepHistory,
    recorded_checkpoints,
    recorded_pickle,
)
from tune_tf.result_keys import TRAINING_ITERATION
from tune_tf.schedulers.state import SchedulerResume
from tune_tf.space import SearchSpace, flatten, nest
from tune_tf.space.hashable import hashable
from tune_tf.sweep.storage import SweepStorage
from tune_tf.sweep_folder import trial_folder_name
from tune_tf.trainables.memory.oom_retries import RetryResources
from tune_tf.tune_internals.trial_state import to_training_result

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SavedTrial:
    """A trial that goes on.

    Args:
        recorded: What is recorded of it.
        checkpoint: Path of the newest intact checkpoint in the sweep's storage; None to start over.
        result: The result that the checkpoint belongs to.
        saved: Iteration of the newest checkpoint that was registered.
        damaged: Paths of newer checkpoints, which are damaged or missing.
    """

    recorded: RecordedTrial
    checkpoint: str | None = None
    result: Mapping[str, Any] = field(default_factory=dict)
    saved: int = 0
    damaged: tuple[str, ...] = ()


@dataclass(frozen=True)
class Resume:
    """What a sweep resumes from; nothing on disk changes before :meth:`clean_up`."""

    storage: SweepStorage
    history: SweepHistory = field(default_factory=SweepHistory)
    trials: tuple[SavedTrial, ...] = ()  # that go on, by number
    scheduler: bytes | None = None
    unneeded: tuple[str, ...] = ()  # checkpoints that the record does not have, or damaged ones
    losses: tuple[str, ...] = ()  # descriptions of lost data, one sentence each

    @classmethod
    def read(cls, folder: Path, config: SweepConfig) -> "Resume":
        """Read what is recorded in a sweep's folder, and look for the checkpoints.

        Raises:
            SweepConflictError: The record is missing or damaged.
            InvalidSettingsError: The remote storage cannot be reached.
        """
        storage = SweepStorage.of(folder, config)
        history = SweepHistory.read(folder)
        if not history.sessions and any(folder.glob(f"{trial_folder_name(0)[:-5]}*/checkpoint_*")):
            raise SweepConflictError(
                f"{folder} cannot be resumed: its record, {RECORD}, is missing or empty; restore "
                f"it, with the files {RECORD}-wal and {RECORD}-shm that belong to it"
            )
        losses: list[str] = []
        trials = history.trials.values()
        going_on = [trial for trial in trials if trial.goes_on]
        saved = tuple(_saved_trial(folder, storage, trial, losses) for trial in going_on)
        ahead = {path for each in saved for path in each.damaged}
        known = {path for trial in trials for path in trial.checkpoints} - ahead
        stored = (
            storage.relative(path)
            for trial in going_on
            for path in storage.checkpoints(storage.path(trial.name))
        )
        for trial in trials:
            newest = trial.checkpoints[-1] if trial.checkpoints and not trial.goes_on else None
            if newest is not None and not storage.is_intact(storage.path(newest)):
                losses.append(
                    f"{newest}, the last checkpoint of a trial that has ended, is damaged or "
                    "missing: its model cannot be exported"
                )
        return cls(
            storage,
            history,
            saved,
            recorded_pickle(folder, "scheduler"),
            (*ahead, *(path for path in stored if path not in known)),
            tuple(losses),
        )

    def clean_up(self, record: Record) -> None:
        """Remove checkpoints that no trial goes on from, and log the losses."""
        for sentence in self.losses:
            _log.warning("%s", sentence)
        record.begin_step()
        record.forget_checkpoints(self.unneeded)
        record.end_step()
        for path in self.unneeded:
            with suppress(OSError):
                self.storage.remove_checkpoint(self.storage.path(path))

    def make_trials(self, spec: Mapping[str, Any], space: SearchSpace) -> list[Trial]:
        """Return Tune's trials that go on; ``spec`` is that of Tune's experiment."""
        return [_tune_trial(each, spec, space, self.storage) for each in self.trials]

    def for_scheduler(self, trials: Sequence[Trial]) -> SchedulerResume:
        """Return what the scheduler resumes from."""
        return SchedulerResume(
            self.scheduler,
            {trial.trial_id: trial for trial in trials},
            {each.recorded.trial_id: each.saved for each in self.trials},
            {
                each.recorded.trial_id: _resources(each.recorded.resources)
                for each in self.trials
                if each.recorded.resources
            },
            lambda path: Checkpoint(self.storage.path(path), self.storage.filesystem),
        )


def _saved_trial(
    folder: Path, storage: SweepStorage, trial: RecordedTrial, losses: list[str]
) -> SavedTrial:
    """Find the newest intact checkpoint of a trial."""
    results = recorded_checkpoints(folder, trial.number)
    saved = next((int(it[TRAINING_ITERATION]) for it in results.values()), 0)
    damaged = [*takewhile(lambda path: not _is_intact(storage, path), results)]
    path = next((path for path in results if path not in damaged), None)
    result = results.get(path or "", {})
    if damaged:
        start = f"resumes from {path}, iteration {result.get(TRAINING_ITERATION)}"
        losses.append(
            f"{damaged[0]}, the newest checkpoint, is damaged or missing: the trial "
            f"{start if path else 'starts over'}"
        )
    return SavedTrial(trial, path, result, saved, tuple(damaged))


def _is_intact(storage: SweepStorage, path: str) -> bool:
    return storage.is_intact(storage.path(path), thoroughly=True)


def _tune_trial(
    saved: SavedTrial, spec: Mapping[str, Any], space: SearchSpace, storage: SweepStorage
) -> Trial:
    recorded = saved.recorded
    config = own_values(recorded.config, space)
    trial = Trial(
        spec["run"],
        config=deepcopy({**spec["config"], **config}),
        trial_id=recorded.trial_id,
        storage=spec["storage"],
        evaluated_params=flatten(config),
        experiment_tag=recorded.tag,
        stopping_criterion=deepcopy(spec.get("stop") or {}),
        checkpoint_config=spec["checkpoint_config"],
        max_failures=spec["max_failures"],
        log_to_file=spec["log_to_file"],
        placement_group_factory=spec.get("resources_per_trial"),
        trial_name_creator=spec.get("trial_name_creator"),
        trial_dirname_creator=spec.get("trial_dirname_creator"),
    )
    trial.relative_logdir = trial.storage.trial_dir_name = recorded.name
    trial.run_metadata.num_failures = recorded.failures
    if saved.checkpoint is not None:
        path, result = storage.path(saved.checkpoint), dict(saved.result)
        trial.on_checkpoint(to_training_result(path, storage.filesystem, result))
        trial.run_metadata.last_result = {**result, "config": trial.config}
    trial.storage.current_checkpoint_index = max(
        map(_checkpoint_number, storage.checkpoints(storage.path(recorded.name))), default=-1
    )
    if recorded.state == "paused":
        trial.set_status(Trial.PAUSED)
    return trial


def own_values(config: Mapping[str, Any], space: SearchSpace) -> dict[str, Any]:
    """Return a config that was recorded as JSON with the options of the space as they are.

    JSON has no tuples, and no objects.
    """
    flat = flatten(config, space.parameters)
    for path, parameter in space.parameters.items():
        options = getattr(parameter, "options", ())
        if path in flat:
            known = hashable(flat[path])
            same = (option for option in options if _recorded_form(option) == known)
            flat[path] = next(same, flat[path])
    return nest(flat)


def _recorded_form(option: Any) -> Any:
    return hashable(json.loads(json.dumps(option, default=str)))


def _checkpoint_number(path: str) -> int:
    return int(path.rpartition("_")[2])


def _resources(recorded: Mapping[str, Any]) -> PlacementGroupFactory:
    return RetryResources(**recorded)
