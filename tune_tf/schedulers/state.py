"""What lets a scheduler go on after the sweep was killed.

Tune does not save schedulers, and when it resumes a sweep it makes all trials anew; Ray's
schedulers use trials as keys. So a trial is written by its id, and the state is read back when all
trials are there again: Tune adds the restored ones before it asks the scheduler anything.
"""

import io
import os
import pickle
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ray import cloudpickle
from ray.tune.experiment import Trial
from ray.tune.schedulers import TrialScheduler

from tune_tf.config import SchedulerSettings
from tune_tf.errors import SweepConflictError
from tune_tf.objective import Objective

_NOT_STATE = ("_trials", "_saved")


@dataclass(frozen=True)
class _Saved:
    """What a scheduler's file holds, until the trials are there again.

    Args:
        scheduler: Name of its class.
        objective: What it compared trials by.
        settings: Its settings.
        statuses: Status of each trial by its id, in the order of their adding.
        state: The pickled attributes, in which trials stand by their ids.
        trials: The trials that have come back, by id.
    """

    scheduler: str
    objective: Objective
    settings: SchedulerSettings
    statuses: Mapping[str, str]
    state: bytes
    trials: dict[str, Trial] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return the settings as the error of a conflict shows them."""
        settings = ", ".join(f"{name}={value!r}" for name, value in self.settings)
        return f"{self.scheduler}({self.objective.mode} {self.objective.metric}, {settings})"


class ResumeMixin(TrialScheduler):
    """Mixin for a Ray scheduler: its state can be saved at any time and restored for a resume.

    Whoever resumes a sweep calls :meth:`save` now and then, and :meth:`restore` before Tune adds
    the restored trials. What waited goes on waiting, so that a bracket is not taken up in part.
    """

    objective: Objective
    settings: SchedulerSettings

    def _begin(self, objective: Objective, settings: SchedulerSettings) -> None:
        """Take up the settings; the last line of a subclass's ``__init__``."""
        self.objective = objective
        self.settings = settings
        self._trials: dict[str, Trial] = {}
        self._saved: _Saved | None = None

    @property
    def needed_checkpoints(self) -> frozenset[str]:
        """Paths of checkpoints that a trial may yet be given which is not the one that made them.

        A trial's folder stands for all of its checkpoints. What a trial that has not ended goes on
        from is needed anyway; a trial that has ended, no scheduler takes up again: those that wait
        for a promotion or for their bracket are paused.
        """
        return frozenset()

    def save(self, checkpoint_path: str | os.PathLike[str]) -> None:
        """Write the state to a file, in one step: a reader sees the old file or the new one."""
        path = Path(checkpoint_path)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        try:
            with os.fdopen(handle, "wb") as file:
                pickle.dump(self._saved or self._snapshot(), file)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise

    def restore(self, checkpoint_path: str | os.PathLike[str]) -> None:
        """Take up a state that :meth:`save` wrote, once Tune has added its trials again.

        Raises:
            SweepConflictError: It was written by a scheduler of another kind or other settings,
                whose rungs do not fit.
        """
        saved = pickle.loads(Path(checkpoint_path).read_bytes())  # noqa: S301 - Tune's own state lies beside it, pickled too
        ours = _Saved(type(self).__name__, self.objective, self.settings, {}, b"")
        if str(saved) != str(ours):
            raise SweepConflictError(
                f"{checkpoint_path} was saved by {saved}; it cannot go on as {ours}: resume with "
                "the settings it was started with"
            )
        self._saved = saved

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """Add a trial, unless it is one that comes back."""
        if self._saved is not None and trial.trial_id in self._saved.statuses:
            self._saved.trials[trial.trial_id] = trial
            waited = self._saved.statuses[trial.trial_id] == Trial.PAUSED
            if waited and trial.status == Trial.PENDING:
                trial.set_status(Trial.PAUSED)
            return
        self._take_up(tune_controller)
        self._trials[trial.trial_id] = trial
        super().on_trial_add(tune_controller, trial)

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        """Return what Ray's scheduler decides."""
        self._take_up(tune_controller)
        return super().on_trial_result(tune_controller, trial, result)

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        """Let Ray's scheduler know the end of a trial that ran."""
        self._take_up(tune_controller)
        super().on_trial_complete(tune_controller, trial, result)

    def on_trial_remove(self, tune_controller: Any, trial: Trial) -> None:
        """Let Ray's scheduler know the end of a trial that waited."""
        self._take_up(tune_controller)
        super().on_trial_remove(tune_controller, trial)

    def on_trial_error(self, tune_controller: Any, trial: Trial) -> None:
        """Let Ray's scheduler know that a trial failed."""
        self._take_up(tune_controller)
        super().on_trial_error(tune_controller, trial)

    def choose_trial_to_run(self, tune_controller: Any, **options: Any) -> Trial | None:
        """Return the trial that Ray's scheduler wants to run next."""
        self._take_up(tune_controller)
        return super().choose_trial_to_run(tune_controller, **options)

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes to be written."""
        return dict(self.__dict__)

    def _snapshot(self) -> _Saved:
        buffer = io.BytesIO()
        state = {key: value for key, value in self.__getstate__().items() if key not in _NOT_STATE}
        _Pickler(buffer, self).dump(state)
        return _Saved(
            type(self).__name__,
            self.objective,
            self.settings,
            {trial_id: trial.status for trial_id, trial in self._trials.items()},
            buffer.getvalue(),
        )

    def _take_up(self, tune_controller: Any) -> None:
        """Read the state back, with the trials that there are again in place of their ids."""
        saved, self._saved = self._saved, None
        if saved is None:
            return
        trials = {
            trial_id: saved.trials.get(trial_id) or _lost(trial_id) for trial_id in saved.statuses
        }
        self.__dict__.update(_Unpickler(io.BytesIO(saved.state), self, trials).load())
        self._trials.update(trials)  # those that are lost, too: the state names them
        for trial_id, status in saved.statuses.items():
            was_live = status not in (Trial.TERMINATED, Trial.ERROR)
            is_live = not trials[trial_id].is_finished()
            if was_live and not is_live:
                super().on_trial_remove(tune_controller, trials[trial_id])
            if is_live and not was_live:
                super().on_trial_add(tune_controller, trials[trial_id])


def _lost(trial_id: str) -> Trial:
    """Return what stands for a trial that the scheduler knew and Tune does not bring back."""
    trial = Trial("lost", stub=True, trial_id=trial_id)
    trial.set_status(Trial.TERMINATED)
    return trial


class _Pickler(cloudpickle.CloudPickler):
    """Writes trials as their ids, and the functions that Ray's schedulers keep by value."""

    def __init__(self, file: io.BytesIO, scheduler: ResumeMixin) -> None:
        super().__init__(file)
        self._scheduler = scheduler

    def persistent_id(self, obj: Any) -> tuple[str, str] | None:
        if obj is self._scheduler:
            return "scheduler", ""
        return ("trial", obj.trial_id) if isinstance(obj, Trial) else None


class _Unpickler(pickle.Unpickler):
    def __init__(
        self, file: io.BytesIO, scheduler: ResumeMixin, trials: Mapping[str, Trial]
    ) -> None:
        super().__init__(file)
        self._scheduler = scheduler
        self._trials_by_id = trials

    def persistent_load(self, pid: tuple[str, str]) -> Any:
        kind, trial_id = pid
        return self._scheduler if kind == "scheduler" else self._trials_by_id[trial_id]
