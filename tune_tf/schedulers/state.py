"""State of a scheduler in the record of its sweep, for a resume.

Ray's schedulers use trials as keys, and a resume makes trials anew. So trials are pickled as their
ids, and the state is restored once those that go on exist again; ended ones are placeholders.
"""

import io
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ray import cloudpickle
from ray.tune import Checkpoint, PlacementGroupFactory
from ray.tune.experiment import Trial
from ray.tune.schedulers import TrialScheduler

from tune_tf.config import SchedulerSettings
from tune_tf.errors import SweepConflictError
from tune_tf.objective import Objective
from tune_tf.tune_internals.controller import ControllerProxy
from tune_tf.tune_internals.trial_state import EndedTrials

_UNSAVED = (
    "requested_ends",
    "_trials",
    "_ends",
    "_repeated",
    "_awaited",
    "_gone",
    "_resources",
    "_is_changed",
)


@dataclass(frozen=True)
class _SavedState:
    """Content of a scheduler's pickle.

    Args:
        scheduler: The scheduler with its settings, as text.
        trial_ids: Of all trials, in the order of addition.
        live_ids: Of those that had not ended.
        attributes: The pickled attributes, with ids in place of trials.
    """

    scheduler: str
    trial_ids: tuple[str, ...]
    live_ids: frozenset[str]
    attributes: bytes


@dataclass(frozen=True)
class SchedulerResume:
    """What a scheduler resumes from.

    Args:
        state: What :meth:`ResumeMixin.changed_state` returned last; None if it never did.
        trials: The trials that go on, by id; paused ones are PAUSED.
        saved: Iteration of the newest checkpoint of these, by id.
        resources: What they reserve, where that is not what the trainable asks for, by id.
        checkpoint: Returns the checkpoint at a path in the sweep's storage.
    """

    state: bytes | None = None
    trials: Mapping[str, Trial] = field(default_factory=dict)
    saved: Mapping[str, int] = field(default_factory=dict)
    resources: Mapping[str, PlacementGroupFactory] = field(default_factory=dict)
    checkpoint: Callable[[str], Checkpoint] = Checkpoint


class ResumeMixin(TrialScheduler):
    """Mixin for a Ray scheduler whose state a resume can restore."""

    objective: Objective
    settings: SchedulerSettings

    def _configure(self, objective: Objective, settings: SchedulerSettings) -> None:
        """Set the settings; the last line of a subclass's ``__init__``."""
        self.objective = objective
        self.settings = settings
        self._trials: dict[str, Trial] = {}
        self._ends = EndedTrials()
        self._decisions: dict[str, tuple[int, str]] = {}  # the last one on each trial that goes on
        self._repeated: dict[str, tuple[int, str]] = {}  # those of trials that a resume takes back
        self._awaited: set[str] = set()  # trials that Tune is to add again
        self._gone: list[Trial] = []  # trials of which no hook told that they ended
        self._resources: dict[str, PlacementGroupFactory] = {}
        self._is_changed = False

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

    def changed_state(self) -> bytes | None:
        """Return the state if it has changed since the last call; None if it has not."""
        if not self._is_changed:
            return None
        self._is_changed = False
        file = io.BytesIO()
        attributes = self.__getstate__().items()
        _Pickler(file, self).dump({key: it for key, it in attributes if key not in _UNSAVED})
        live = frozenset(key for key, trial in self._trials.items() if not trial.is_finished())
        return pickle.dumps(_SavedState(self._text(), tuple(self._trials), live, file.getvalue()))

    def resume(self, resume: SchedulerResume) -> None:
        """Restore a state, before Tune adds the trials that go on.

        A trial that was to be paused when it was killed is paused, though its checkpoint is an
        older one: its epochs are repeated, but what was decided on them stays.

        Raises:
            SweepConflictError: It is that of another kind of scheduler or has other settings.
        """
        self._resources = dict(resume.resources)
        if resume.state is None:
            return
        saved = pickle.loads(resume.state)  # noqa: S301 - of the user's own sweep
        if saved.scheduler != self._text():
            raise SweepConflictError(
                f"the sweep has decided by {saved.scheduler}; it cannot go on with {self._text()}: "
                "resume with the original settings"
            )
        self._trials = {it: resume.trials.get(it) or _ended_trial(it) for it in saved.trial_ids}
        self.__dict__.update(_Unpickler(io.BytesIO(saved.attributes), self, resume).load())
        self._awaited = self._trials.keys() & resume.trials.keys()
        self._gone = [self._trials[it] for it in saved.live_ids - resume.trials.keys()]
        for trial_id, (iteration, decision) in self._decisions.items():
            is_paused = decision == TrialScheduler.PAUSE
            if is_paused and trial_id in self._awaited and resume.saved[trial_id] < iteration:
                self._trials[trial_id].set_status(Trial.PAUSED)
            self._repeated[trial_id] = (
                iteration,
                TrialScheduler.CONTINUE if is_paused else decision,
            )

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """Add a trial, unless the restored state has it already."""
        if (resources := self._resources.pop(trial.trial_id, None)) is not None:
            trial.update_resources(resources)
        if trial.trial_id in self._awaited:
            self._awaited.remove(trial.trial_id)
            return
        self._end(trial)  # before a retry
        self._trials[trial.trial_id] = trial
        super().on_trial_add(tune_controller, trial)

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        """Return the decision of Ray's scheduler."""
        self._is_changed = True
        return super().on_trial_result(tune_controller, trial, result)

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        """Notify Ray's scheduler of the end of a running trial."""
        self._end(trial)
        super().on_trial_complete(tune_controller, trial, result)

    def on_trial_remove(self, tune_controller: Any, trial: Trial) -> None:
        """Notify Ray's scheduler of the end of a paused or pending trial."""
        self._end(trial)
        super().on_trial_remove(tune_controller, trial)

    def on_trial_error(self, tune_controller: Any, trial: Trial) -> None:
        """Notify Ray's scheduler of a failed trial."""
        self._end(trial)
        super().on_trial_error(tune_controller, trial)

    def choose_trial_to_run(self, tune_controller: Any, **options: Any) -> Trial | None:
        """Return the trial that Ray's scheduler wants to run next."""
        if not isinstance(tune_controller, ControllerProxy):
            self._ends.take(tune_controller.get_trials())
            # Ray's schedulers look for a pending or paused one among all.
            tune_controller = ControllerProxy(
                tune_controller, get_trials=lambda: self._ends.unfinished
            )
        while self._gone:
            super().on_trial_remove(tune_controller, self._gone.pop())
        chosen = super().choose_trial_to_run(tune_controller, **options)
        if chosen is None or chosen.trial_id in self._awaited:
            return None  # some choose from lists of their own
        # One that is pending is chosen in each step, until it has an actor.
        self._is_changed = self._is_changed or chosen.status == Trial.PAUSED
        iteration, decision = self._decisions.get(chosen.trial_id, (0, ""))
        if decision == TrialScheduler.PAUSE:  # no resume is to pause it once more
            self._is_changed = True
            self._decisions[chosen.trial_id] = iteration, TrialScheduler.CONTINUE
        return chosen

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes to be saved."""
        return dict(self.__dict__)

    def _end(self, trial: Trial) -> None:
        self._is_changed = True
        self._decisions.pop(trial.trial_id, None)
        self._repeated.pop(trial.trial_id, None)

    def _text(self) -> str:
        """Return the scheduler with its settings; a state fits no other."""
        settings = ", ".join(f"{name}={value!r}" for name, value in self.settings)
        return f"{type(self).__name__}({self.objective.mode} {self.objective.metric}, {settings})"


def _ended_trial(trial_id: str) -> Trial:
    """Return a placeholder for a trial that has ended."""
    trial = Trial("ended", stub=True, trial_id=trial_id)
    trial.set_status(Trial.TERMINATED)
    return trial


class _Pickler(cloudpickle.CloudPickler):
    """Pickler that writes trials as their ids, checkpoints as paths, and functions by value."""

    def __init__(self, file: io.BytesIO, scheduler: ResumeMixin) -> None:
        super().__init__(file)
        self._scheduler = scheduler

    def persistent_id(self, obj: Any) -> tuple[str, str] | None:
        if type(obj) in (str, int, float, tuple):  # most are
            return None
        if obj is self._scheduler:
            return "scheduler", ""
        if isinstance(obj, Checkpoint):
            return "checkpoint", "/".join(obj.path.split("/")[-2:])
        return ("trial", obj.trial_id) if isinstance(obj, Trial) else None


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, scheduler: ResumeMixin, resume: SchedulerResume) -> None:
        super().__init__(file)
        self._scheduler = scheduler
        self._resume = resume

    def persistent_load(self, pid: tuple[str, str]) -> Any:
        kind, name = pid
        if kind == "scheduler":
            return self._scheduler
        return self._resume.checkpoint(name) if kind == "checkpoint" else self._trial(name)

    def _trial(self, trial_id: str) -> Trial:
        trials = self._scheduler._trials  # noqa: SLF001 - its own
        if trial_id not in trials:
            trials[trial_id] = _ended_trial(trial_id)
        return trials[trial_id]
