"""Tune controller without processes: scripted trials, real scheduler calls."""

from pathlib import Path
from types import SimpleNamespace

from ray.train._internal.session import _TrainingResult
from ray.tune import Checkpoint
from ray.tune.experiment import Trial
from ray.tune.schedulers import TrialScheduler

METRIC = "val_loss"


class ScriptedTrial(Trial):
    """A trial without an experiment: it only needs a folder for the notes that PBT makes."""

    local_experiment_path = local_dir = "."

    def __init__(self, trial_id, config=None, stop=None):
        super().__init__(
            "trainable",
            stub=True,
            trial_id=trial_id,
            config=config or {},
            stopping_criterion=stop,
            experiment_tag=trial_id,
        )


class Controller:
    """Runs trials to their ends under a scheduler.

    Args:
        scheduler: The scheduler.
        curves: What each trial reports, by iteration from 1; it fails where the curve raises.
        slots: How many trials run at a time. Paused ones do not count.
        configs: The trials' configs.
        stop: ``tune.run(stop=...)``, for Ray's schedulers that know no limit.
        ids: The trials' ids.
    """

    def __init__(self, scheduler, curves, *, slots=2, configs=None, stop=None, ids=None):
        self.scheduler, self.slots = scheduler, slots
        self.curves = dict(zip(ids or [f"t{i}" for i in range(len(curves))], curves, strict=True))
        configs = configs or [{} for _ in curves]
        self.waiting = [
            ScriptedTrial(trial_id, config, stop and dict(stop))
            for trial_id, config in zip(self.curves, configs, strict=True)
        ]
        self.trials: list[ScriptedTrial] = []
        self.live: set[ScriptedTrial] = set()
        self.reached: dict[str, int] = {}
        # Ray's variant for BOHB notes pauses there.
        searcher = SimpleNamespace(on_pause=id, on_unpause=id)
        self.search_alg = SimpleNamespace(searcher=searcher, is_finished=lambda: not self.waiting)

    def get_trials(self):
        return self.trials

    def get_live_trials(self):
        return self.live

    def in_state(self, *statuses):
        return [trial for trial in self.trials if trial.status in statuses]

    def run(self, until=lambda controller: False):
        """Run to the end of all trials; raise where none can go on."""
        while not until(self) and (self.waiting or any(not t.is_finished() for t in self.trials)):
            if not (self._fill() | self._advance()):
                states = {trial.trial_id: trial.status for trial in self.trials}
                raise AssertionError(f"nobody can go on: {states}")
        return self

    def ends(self):
        """Return each trial's iteration and reason at its end."""
        return {
            trial.trial_id: (
                trial.last_result.get("training_iteration"),
                trial.last_result.get("stop_reason"),
            )
            for trial in self.trials
        }

    def _fill(self):
        begun = False
        while self.waiting and len(self.in_state(Trial.PENDING, Trial.RUNNING)) < self.slots:
            self.add(self.waiting.pop(0))
            begun = True
        while len(self.in_state(Trial.RUNNING)) < self.slots:
            chosen = self.scheduler.choose_trial_to_run(self)
            if chosen is None:
                break
            self._start(chosen)
            begun = True
        return begun

    def add(self, trial):
        self.trials.append(trial)
        self.live.add(trial)
        self.scheduler.on_trial_add(self, trial)

    def _start(self, trial):
        trial.set_status(Trial.RUNNING)
        restored = trial.latest_checkpoint_result
        if restored and restored.checkpoint:
            self.reached[trial.trial_id] = restored.metrics["training_iteration"]

    def _advance(self):
        """Let each running trial report once."""
        running = self.in_state(Trial.RUNNING)
        for trial in running:
            if trial.status == Trial.RUNNING:
                self._report(trial)
        return bool(running)

    def _report(self, trial):
        iteration = self.reached.get(trial.trial_id, 0) + 1
        self.reached[trial.trial_id] = iteration
        try:
            value = self.curves[trial.trial_id](iteration)
        except ZeroDivisionError:
            self.scheduler.on_trial_error(self, trial)
            trial.set_status(Trial.ERROR)  # Tune leaves it among the live ones
            return
        result = {METRIC: value, "training_iteration": iteration}
        if trial.should_stop(result):
            decision = TrialScheduler.STOP
        else:
            decision = self.scheduler.on_trial_result(self, trial, dict(result))
        if decision == TrialScheduler.STOP:
            result["done"] = True
        trial.update_last_result(result)
        if decision == TrialScheduler.STOP:
            self.stop_trial(trial)
        elif decision == TrialScheduler.PAUSE:
            self.pause_trial(trial)

    def _set_trial_status(self, trial, status):
        trial.set_status(status)

    def stop_trial(self, trial):
        if trial.status == Trial.RUNNING:
            self.scheduler.on_trial_complete(self, trial, dict(trial.last_result))
        else:
            self.scheduler.on_trial_remove(self, trial)
        trial.set_status(Trial.TERMINATED)
        self.live.discard(trial)

    def pause_trial(self, trial, should_checkpoint=True):
        assert trial.status == Trial.RUNNING, "Tune loses the process that it starts"
        if should_checkpoint:
            checkpoint = self._schedule_trial_save(trial)
            saved = _TrainingResult(checkpoint, dict(trial.last_result))
            trial.run_metadata.checkpoint_manager._latest_checkpoint_result = saved  # as PBT does
        trial.set_status(Trial.PAUSED)

    def _schedule_trial_save(self, trial, result=None):
        return Checkpoint(str(Path(trial.trial_id).absolute()))
