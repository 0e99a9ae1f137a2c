"""Sweeps that are killed after a step of Tune's, and go on from what their record knows."""

import math
import random

import numpy as np
from ray.train._internal.session import _TrainingResult
from ray.tune import Checkpoint
from ray.tune.experiment import Trial
from scripted_trials import Controller, ScriptedTrial

from tune_tf.objective import Objective
from tune_tf.schedulers.state import SchedulerResume
from tune_tf.space import Float, SearchSpace

LOSS = Objective("val_loss", "min")
SPACE = SearchSpace({"rate": Float(0.1, 1.0)})
COUNT = 8
SETTINGS = {
    "fifo": {},
    "asha": {},
    "HyperBandScheduler": {},
    "HyperBandForBOHB": {},
    "MedianStoppingRule": {},
    "freeze_thaw": {"seed": 1, "max_paused": 3},
    "pbt": {"perturbation_interval": 2},
    "pb2": {"perturbation_interval": 2},
}


def make(name, **settings):
    from tune_tf.schedulers import scheduler

    return scheduler(name, LOSS, space=SPACE, **{"epochs": 9, **SETTINGS[name], **settings})


def curve(number):
    """Return what a trial reports: one diverges, one fails for good, and one is tried again."""

    def value(iteration):
        if number == 6 and iteration == 3:
            raise ZeroDivisionError
        return (
            math.nan if number == 3 and iteration > 4 else (number * 5 + 3) % COUNT + 1 / iteration
        )

    return value


class KilledSweep(Controller):
    """Sweep whose steps are one report each, so that it can be killed after any.

    Trials that are behind what they have reported before a kill catch up before others go on.

    Attributes:
        state: The scheduler's, as recorded.
        saves: Checkpoints of each trial, oldest first, as recorded.
        told: Iteration up to which each trial has reported.
        num_steps: Since the beginning.
    """

    def __init__(self, name, *, slots=COUNT, save_every=1):
        configs = [{"rate": 0.1 * (number + 1)} for number in range(COUNT)]
        curves = [curve(number) for number in range(COUNT)]
        super().__init__(make(name), curves, slots=slots, configs=configs)
        self.name, self.save_every = name, save_every
        self.state, self.num_steps, self.was_retried = None, 0, False
        self.saves = {trial_id: [] for trial_id in self.curves}
        self.told = dict.fromkeys(self.curves, 0)
        self.last_step = {}  # in which each trial has reported something new
        self.saving = set()
        self.storage = "/storage"
        self.going_on = []  # trials of a resume
        self.earlier = {}  # how trials have ended in earlier sessions

    def run(self, num_steps=math.inf):
        """Run to the end, or so many steps."""
        until = self.num_steps + num_steps
        while self.num_steps < until and not self.has_ended:
            self.num_steps += 1
            assert self.num_steps < 999, "it never ends"
            random.seed(self.num_steps)
            np.random.seed(self.num_steps)  # noqa: NPY002 - of Ray's
            saved, self.saving = self.saving, set()
            begun = self._fill()
            running = self.in_state(Trial.RUNNING)
            if not running and not begun and not self.has_ended:
                states = {trial.trial_id: trial.status for trial in self.trials}
                raise AssertionError(f"nobody can go on: {states}")
            if running:
                self._report(min(running, key=self._turn))
            self._record(saved)
        return self

    @property
    def has_ended(self):
        return not self.waiting and all(trial.is_finished() for trial in self.trials)

    def resumed(self, *, damaged=False):
        """Return the sweep as it goes on: all is new but what the record has.

        The newest checkpoints are lost if they are ``damaged``.
        """
        again = KilledSweep(self.name, slots=self.slots, save_every=self.save_every)
        again.storage = f"{self.storage}-moved"
        again.saves = {key: [again._moved(it) for it in saves] for key, saves in self.saves.items()}
        again.num_steps, again.told = self.num_steps, dict(self.told)
        again.last_step = dict(self.last_step)
        again.was_retried, again.earlier = self.was_retried, self.ends()
        known = [*self.trials, *(trial for trial in self.waiting if trial in self.going_on)]
        again.going_on = [again._made(it, self, damaged) for it in known if not it.is_finished()]
        new = {trial.trial_id for trial in self.waiting if trial not in self.going_on}
        saved = {key: iteration_of(it[-1]) for key, it in self.saves.items() if it}
        again.state = self.state
        again.scheduler.resume(
            SchedulerResume(
                self.state,
                {trial.trial_id: trial for trial in again.going_on},
                {it.trial_id: saved.get(it.trial_id, 0) for it in again.going_on},
                checkpoint=lambda path: Checkpoint(f"{again.storage}/{path}"),
            )
        )
        again.waiting = [
            *sorted(again.going_on, key=lambda trial: trial.status != Trial.PAUSED),
            *(trial for trial in again.waiting if trial.trial_id in new),
        ]
        return again

    def ends(self):
        """Return the last iteration that each ended trial has reported, and its reason."""
        return self.earlier | {
            trial.trial_id: (self.told[trial.trial_id], trial.last_result.get("stop_reason"))
            for trial in self.trials
            if trial.is_finished()
        }

    def _made(self, old, killed, damaged):
        trial = ScriptedTrial(old.trial_id, old.config)
        trial.set_experiment_tag(old.experiment_tag)
        saves = self.saves[old.trial_id]
        usable = saves[:-1] if damaged else saves
        if usable:
            trial.run_metadata.checkpoint_manager._latest_checkpoint_result = usable[-1]
            trial.run_metadata.last_result = dict(usable[-1].metrics)
        self.reached[old.trial_id] = iteration_of(usable[-1]) if usable else 0
        if old.status == Trial.PAUSED and old.trial_id not in killed.saving:
            trial.set_status(Trial.PAUSED)
        return trial

    def _moved(self, saved):
        path = "/".join(saved.checkpoint.path.split("/")[-2:])
        return _TrainingResult(Checkpoint(f"{self.storage}/{path}"), saved.metrics)

    def _schedule_trial_save(self, trial, result=None):
        number = self.reached[trial.trial_id]
        return Checkpoint(f"{self.storage}/{trial.trial_id}/checkpoint_{number:06d}")

    def _start(self, trial):
        super()._start(trial)
        saved = trial.latest_checkpoint_result
        if (
            saved and f"/{trial.trial_id}/" not in saved.checkpoint.path
        ):  # another's, which it copies
            self.told[trial.trial_id] = iteration_of(saved)

    def _turn(self, trial):
        trial_id = trial.trial_id
        is_behind = self.reached.get(trial_id, 0) < self.told[trial_id]
        return not is_behind, self.last_step.get(trial_id, 0), trial_id

    def _report(self, trial):
        trial_id = trial.trial_id
        if trial_id == "t5" and self.told[trial_id] == 2 and not self.was_retried:
            self._retry(trial)
            return
        is_behind = self.reached.get(trial_id, 0) < self.told[trial_id]
        super()._report(trial)
        if not is_behind:
            self.last_step[trial_id] = self.num_steps
        reached = self.reached[trial_id]
        self.told[trial_id] = max(self.told[trial_id], reached)
        if trial.status == Trial.RUNNING and reached % self.save_every == 0:
            saved = _TrainingResult(self._schedule_trial_save(trial), dict(trial.last_result))
            trial.run_metadata.checkpoint_manager._latest_checkpoint_result = saved

    def _retry(self, trial):
        """Fail, and wait for another start, as in Tune."""
        self.was_retried = True
        self.scheduler.on_trial_error(self, trial)
        trial.set_status(Trial.PENDING)
        self.trials.remove(trial)
        self.reached[trial.trial_id] = 0
        self.add(trial)

    def pause_trial(self, trial, should_checkpoint=True):
        super().pause_trial(trial, should_checkpoint)
        if should_checkpoint and self.reached[trial.trial_id] % self.save_every:
            self.saving.add(trial.trial_id)  # until the next step

    def _record(self, saved):
        """Record what has changed in a step; what a trial saves as it is paused comes later."""
        self.state = self.scheduler.changed_state() or self.state
        for trial in self.trials:
            latest, saves = trial.latest_checkpoint_result, self.saves[trial.trial_id]
            is_new = latest is not None and latest.checkpoint is not None
            if is_new and latest not in saves[-1:] and trial.trial_id not in self.saving:
                saves.append(latest)


def iteration_of(saved):
    return saved.metrics["training_iteration"]
