"""Editor for Tune's experiment state files, whose format Ray does not document.

``experiment_state-*.json`` holds two JSON texts per trial, with embedded pickles;
``search_gen_state-*.json`` holds the number of trials and is a pickle despite its name.
"""

import json
import pickle
import pickletools
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ray import cloudpickle

from tune_tf.outcome import STOP_CAUSE, STOP_REASON, Outcome
from tune_tf.record import RecordedTrial
from tune_tf.sweep.state.storage import SweepStorage
from tune_tf.sweep_folder import trial_folder_name
from tune_tf.tune_internals.trial_state import to_training_result

_PICKLED = "CLOUDPICKLE_FALLBACK"
_ENDED = ("TERMINATED", "ERROR")


@dataclass(frozen=True)
class SavedCheckpoint:
    """Checkpoint in Tune's state."""

    folder: Path  # relative to the sweep's: trial_00003/checkpoint_000004
    iteration: int
    registered: Any  # Tune's object


class TuneTrial:
    """Editable trial of Tune's state; :meth:`TuneState.files` includes the changes."""

    def __init__(self, state: dict[str, Any], run: dict[str, Any]) -> None:
        self._state = state
        self._run = run
        self.trial_id = str(state["trial_id"])
        self.folder_name = str(state["relative_logdir"] or state["custom_dirname"])
        self.number = int(str(state["experiment_tag"]).partition("_")[0]) - 1
        self.has_ended = state["status"] in _ENDED
        self._manager = _unpickled(run["checkpoint_manager"])

    @property
    def status(self) -> str:
        """Tune's status of the trial."""
        return str(self._state["status"])

    @property
    def last_result(self) -> Mapping[str, Any]:
        """The last result; empty before the first."""
        return self._run["last_result"] or {}

    @property
    def checkpoints(self) -> list[SavedCheckpoint]:
        """Checkpoints known to Tune, newest first."""
        latest = self._manager.latest_checkpoint_result
        registered = [each for each in self._manager.best_checkpoint_results if each is not latest]
        saved = [_saved(each) for each in registered if each.checkpoint]
        saved.sort(key=lambda each: each.iteration, reverse=True)
        return [_saved(latest), *saved] if latest and latest.checkpoint else saved

    def end(self, recorded: RecordedTrial) -> None:
        """Add an end that Tune's state does not contain yet, with the last result."""
        outcome = recorded.outcome or Outcome.INTERRUPTED
        result = {**self.last_result, **recorded.last, STOP_REASON: outcome.value}
        if recorded.cause:
            result[STOP_CAUSE] = recorded.cause
        self._state["status"] = outcome.tune
        self._run["last_result"] = result
        self.has_ended = True

    def keep_checkpoints(self, saved: Sequence[SavedCheckpoint]) -> None:
        """Keep only these checkpoints, newest first; the trial resumes from the first, if any.

        All must exist, as Tune fails to remove a missing one.
        """
        manager = type(self._manager)(self._manager.checkpoint_config)
        for each in reversed(saved):
            manager.register_checkpoint(each.registered)
        if not saved and not self.has_ended:
            self._run["last_result"] = {}
        self._manager = manager
        self._run["checkpoint_manager"] = _pickled(manager)

    def register(
        self, storage: SweepStorage, path: str, iteration: int, result: Mapping[str, Any]
    ) -> SavedCheckpoint:
        """Register a checkpoint that Tune may not know, and continue its numbering.

        ``result`` is the known part of the iteration's result.
        """
        self._set_storage(self.folder_name, int(path.rpartition("_")[2]))
        metrics = {**result, "training_iteration": iteration}
        return _saved(to_training_result(path, storage.filesystem, metrics))

    def copy_for(self, recorded: RecordedTrial) -> "TuneTrial":
        """Return an unstarted trial that Tune has not saved, modelled on this one."""
        state, run = deepcopy(self._state), deepcopy(self._run)
        name = trial_folder_name(recorded.number)
        config = dict(recorded.config)
        tag = f"{recorded.number + 1}_{str(state['experiment_tag']).partition('_')[2]}"
        state |= {
            "trial_id": recorded.trial_id,
            "config": config,
            "_Trial__unresolved_config": config,
            "evaluated_params": config,
            "experiment_tag": tag,
            "status": "PENDING",
            "relative_logdir": name,
            "custom_trial_name": name,
            "custom_dirname": name,
            "restore_path": None,
            "_restore_checkpoint_result": None,
        }
        run |= {
            "start_time": recorded.started_s,
            "num_failures": 0,
            "num_failures_after_restore": 0,
            "error_filename": None,
            "pickled_error_filename": None,
            "last_result": {},
            "last_result_time": recorded.started_s or 0.0,
            "metric_analysis": {},
            "metric_n_steps": {},
        }
        copy = TuneTrial(state, run)
        copy._set_storage(name, -1)
        copy.keep_checkpoints(())
        return copy

    def set_max_failures(self, max_failures: int) -> None:
        """Set the number of restarts after failures."""
        self._state["max_failures"] = max_failures

    def _set_storage(self, folder_name: str, checkpoint_index: int) -> None:
        """Set the trial's folder and the index of its last checkpoint."""
        storage = _unpickled(self._state["storage"])
        storage.trial_dir_name = folder_name
        storage.current_checkpoint_index = checkpoint_index
        self._state["storage"] = _pickled(storage)

    def texts(self) -> list[str]:
        """Return the trial's two JSON texts in Tune's file."""
        return [json.dumps(self._state, indent=2), json.dumps(self._run, indent=2)]


class TuneState:
    """Editable Tune state of a sweep; raises ValueError for damaged, missing or unknown files."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._files = dict(files)
        try:
            self._experiment_name = _name_of(files, "experiment_state-")
            self._search_name = _name_of(files, "search_gen_state-")
            for name in files:
                if name != self._experiment_name:
                    _check_pickle(name, files[name])
            self._search = pickle.loads(files[self._search_name])  # noqa: S301 - as Tune itself does
            self._experiment = json.loads(files[self._experiment_name])
            self.trials = [
                TuneTrial(json.loads(state), json.loads(run))
                for state, run in self._experiment["trial_data"]
            ]
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"the state of Ray Tune has no {error}") from error

    def add(self, recorded: RecordedTrial) -> TuneTrial:
        """Add a trial that Tune has not saved; raise ValueError without one to model it on."""
        if not self.trials:
            raise ValueError("the state of Ray Tune holds no trial")
        trial = self.trials[0].copy_for(recorded)
        self.trials.append(trial)
        self._search["counter"] = max(self._search["counter"], recorded.number + 1)
        return trial

    def files(self) -> dict[str, bytes]:
        """Return the contents of Tune's files by name."""
        self._experiment["trial_data"] = [trial.texts() for trial in self.trials]
        return self._files | {
            self._search_name: cloudpickle.dumps(self._search),
            self._experiment_name: json.dumps(self._experiment).encode(),
        }


def tune_state_files(storage: SweepStorage, patterns: Sequence[str]) -> Iterator[dict[str, bytes]]:
    """Yield the states in Tune's own files, newest first."""
    for newest in reversed(storage.files(patterns[0])):
        session = newest.partition("-")[2].rpartition(".")[0]
        names = [pattern.replace("*", session) for pattern in patterns]
        if all(storage.files(name) for name in names):
            yield {name: storage.read(name) for name in names}


def _name_of(files: Mapping[str, bytes], beginning: str) -> str:
    names = [name for name in files if name.startswith(beginning)]
    if not names:
        raise ValueError(f"the state of Ray Tune has no {beginning}*")
    return names[0]


def _check_pickle(name: str, content: bytes) -> None:
    """Raise ValueError if a pickle is truncated, without loading it."""
    try:
        end = max(position or 0 for _, _, position in pickletools.genops(content))
    except Exception as error:  # a truncated file can raise anything
        raise ValueError(f"{name} is damaged: {error}") from error
    if end + 1 != len(content):
        raise ValueError(f"{name} is damaged: it has data after its end")


def _saved(registered: Any) -> SavedCheckpoint:
    path = Path(registered.checkpoint.path)
    iteration = int((registered.metrics or {}).get("training_iteration", 0))
    return SavedCheckpoint(Path(path.parent.name, path.name), iteration, registered)


def _unpickled(value: Any) -> Any:
    if not isinstance(value, dict) or value.get("_type") != _PICKLED:
        raise ValueError("the state of Ray Tune has an unknown format")
    return pickle.loads(bytes.fromhex(value["value"]))  # noqa: S301 - as Tune itself does


def _pickled(value: Any) -> dict[str, str]:
    return {"_type": _PICKLED, "value": cloudpickle.dumps(value).hex()}
