"""Saved state of schedulers, for a resume after the sweep was killed.

Tune does not save schedulers, and creates all trials anew when it resumes a sweep, while Ray's
schedulers use trials as keys. So trials are pickled as their ids, and the state is restored once
all trials exist again: Tune adds restored trials before it asks the scheduler anything.
"""

import io
import os
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ray import cloudpickle
from ray.tune.experiment import Trial
from ray.tune.schedulers import TrialScheduler

from tune_tf.atomic_files import write_atomically
from tune_tf.config import SchedulerSettings
from tune_tf.errors import SweepConflictError
from tune_tf.objective import Objective
from tune_tf.tune_internals.controller import ControllerProxy
from tune_tf.tune_internals.trial_state import EndedTrials

_UNSAVED = ("_trials", "_ends", "_saved_state")


@dataclass(frozen=True)
class _SavedState:
    """Content of a scheduler's file, kept until its trials exist again.

    Args:
        scheduler: The scheduler with its settings, as text.
        statuses: Status of each trial by id, in the order of addition.
        state: The pickled attributes, with ids in place of trials.
        trials: The trials restored so far, by id.
    """

    scheduler: str
    statuses: Mapping[str, str]
    state: bytes
    trials: dict[str, Trial] = field(default_factory=dict)


class ResumeMixin(TrialScheduler):
    """Mixin for a Ray scheduler whose state can be saved at any time and restored for a resume.

    The caller saves now and then, and calls :meth:`restore` before Tune adds the restored trials.
    Paused trials stay paused, so that a bracket is not resumed in part.
    """

    objective: Objective
    settings: SchedulerSettings

    def _configure(self, objective: Objective, settings: SchedulerSettings) -> None:
        """Set the settings; the last line of a subclass's ``__init__``."""
        self.objective = objective
        self.settings = settings
        self._trials: dict[str, Trial] = {}
        self._ends = EndedTrials()
        self._saved_state: _SavedState | None = None

    @property
    def metric(self) -> str:
        """The metric that Tune requires in each result."""
        return self.objective.metric

    @property
    def needed_checkpoints(self) -> frozenset[str]:
        """Paths of checkpoints that another trial than their own may still need.

        A trial's folder stands for all of its checkpoints. Those that an unfinished trial continues
        from are needed anyway; finished trials are never resumed, and those that wait at a rung or
        for their bracket are paused.
        """
        return frozenset()

    def explain(self, trial: Trial) -> str | None:
        """Return why the scheduler pauses or stops a trial, or goes on with it, if it can tell."""
        return None

    def save(self, checkpoint_path: str | os.PathLike[str]) -> None:
        """Write the state to a file atomically."""
        state = pickle.dumps(self._saved_state or self._snapshot())
        write_atomically(Path(checkpoint_path), state, on_disk=False)

    def restore(self, checkpoint_path: str | os.PathLike[str]) -> None:
        """Load a state that :meth:`save` wrote; it takes effect once Tune has added its trials.

        Raises:
            SweepConflictError: It was saved by another kind of scheduler or with other settings.
        """
        saved = pickle.loads(Path(checkpoint_path).read_bytes())  # noqa: S301 - Tune's own state lies beside it, pickled too
        if saved.scheduler != self._text():
            raise SweepConflictError(
                f"{checkpoint_path} was saved by {saved.scheduler}; it cannot be restored as "
                f"{self._text()}: resume with the original settings"
            )
        self._saved_state = saved

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """Add a trial, unless it is a restored one."""
        if self._saved_state is not None and trial.trial_id in self._saved_state.statuses:
            self._saved_state.trials[trial.trial_id] = trial
            was_paused = self._saved_state.statuses[trial.trial_id] == Trial.PAUSED
            if was_paused and trial.status == Trial.PENDING:
                trial.set_status(Trial.PAUSED)
            return
        self._restore_state(tune_controller)
        self._trials[trial.trial_id] = trial
        super().on_trial_add(tune_controller, trial)

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        """Return the decision of Ray's scheduler."""
        self._restore_state(tune_controller)
        return super().on_trial_result(tune_controller, trial, result)

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        """Notify Ray's scheduler of the end of a running trial."""
        self._restore_state(tune_controller)
        super().on_trial_complete(tune_controller, trial, result)

    def on_trial_remove(self, tune_controller: Any, trial: Trial) -> None:
        """Notify Ray's scheduler of the end of a paused or pending trial."""
        self._restore_state(tune_controller)
        super().on_trial_remove(tune_controller, trial)

    def on_trial_error(self, tune_controller: Any, trial: Trial) -> None:
        """Notify Ray's scheduler of a failed trial."""
        self._restore_state(tune_controller)
        super().on_trial_error(tune_controller, trial)

    def choose_trial_to_run(self, tune_controller: Any, **options: Any) -> Trial | None:
        """Return the trial that Ray's scheduler wants to run next."""
        self._restore_state(tune_controller)
        if isinstance(tune_controller, ControllerProxy):
            return super().choose_trial_to_run(tune_controller, **options)  # has only those already
        self._ends.take(tune_controller.get_trials())
        # Ray's schedulers look for a pending or paused one among all.
        proxy = ControllerProxy(tune_controller, get_trials=lambda: self._ends.unfinished)
        return super().choose_trial_to_run(proxy, **options)

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes to be saved."""
        return dict(self.__dict__)

    def _snapshot(self) -> _SavedState:
        buffer = io.BytesIO()
        state = {key: value for key, value in self.__getstate__().items() if key not in _UNSAVED}
        _Pickler(buffer, self).dump(state)
        statuses = {trial_id: trial.status for trial_id, trial in self._trials.items()}
        return _SavedState(self._text(), statuses, buffer.getvalue())

    def _text(self) -> str:
        """Return the scheduler with its settings; a state fits no other."""
        settings = ", ".join(f"{name}={value!r}" for name, value in self.settings)
        return f"{type(self).__name__}({self.objective.mode} {self.objective.metric}, {settings})"

    def _restore_state(self, tune_controller: Any) -> None:
        """Restore the loaded state, with the trials in place of their ids."""
        saved, self._saved_state = self._saved_state, None
        if saved is None:
            return
        trials = {
            trial_id: saved.trials.get(trial_id) or _lost_trial(trial_id)
            for trial_id in saved.statuses
        }
        self.__dict__.update(_Unpickler(io.BytesIO(saved.state), self, trials).load())
        self._trials.update(trials)  # lost ones included: the state refers to them
        for trial_id, status in saved.statuses.items():
            was_live = status not in (Trial.TERMINATED, Trial.ERROR)
            is_live = not trials[trial_id].is_finished()
            if was_live and not is_live:
                super().on_trial_remove(tune_controller, trials[trial_id])
            if is_live and not was_live:
                super().on_trial_add(tune_controller, trials[trial_id])


def _lost_trial(trial_id: str) -> Trial:
    """Return a placeholder for a trial that the scheduler knew and Tune did not restore."""
    trial = Trial("lost", stub=True, trial_id=trial_id)
    trial.set_status(Trial.TERMINATED)
    return trial


class _Pickler(cloudpickle.CloudPickler):
    """Pickler that writes trials as their ids, and functions by value."""

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
