"""Tune controller with a few slots, for driving a scheduler by hand."""

from types import SimpleNamespace

from ray.tune.experiment import Trial

from tune_tf.objective import Objective
from tune_tf.outcome import STOP_REASON

LOSS = Objective("loss", "min")


class Slots:
    """Runs trials in slots, each step one iteration of the next running trial.

    Args:
        scheduler: What is tested.
        curves: ``curve(number, iteration) -> loss`` for trials numbered from 0.
        num_samples: Trials that the searcher has.
        num_slots: Trials at a time.
        limit: Trials that a limit like Ray's lets be unfinished, waiting ones included.
    """

    def __init__(self, scheduler, curve, num_samples, num_slots=1, limit=None):
        self.scheduler, self.curve, self.num_samples = scheduler, curve, num_samples
        self.num_slots, self.limit = num_slots, limit
        self.trials, self.running, self.jobs, self.reports = [], [], [], []
        self.search_alg = SimpleNamespace(is_finished=self.is_finished)
        if limit is not None:
            self.search_alg.searcher = SimpleNamespace(max_concurrent=limit)

    # What schedulers call.

    def get_trials(self):
        return self.trials

    def _set_trial_status(self, trial, status):
        trial.set_status(status)

    def stop_trial(self, trial):
        if trial.status == Trial.RUNNING:
            self.scheduler.on_trial_complete(self, trial, dict(trial.last_result))
        else:
            self.scheduler.on_trial_remove(self, trial)
        self.leave(trial, Trial.TERMINATED)

    # What a test calls.

    def is_finished(self):
        return len(self.trials) >= self.num_samples

    def run(self, max_steps=10_000):
        """Run until nothing changes any more, as Tune does: ask, choose, process one result."""
        for _ in range(max_steps):
            self.fill()
            if not self.running:
                return
            self.step(self.running[0])
        raise AssertionError("never ends")

    def fill(self):
        """Let the searcher propose and the scheduler choose while there are free slots."""
        while len(self.running) < self.num_slots:
            if not self.propose() and not self.choose():
                return

    def propose(self):
        """Add a trial if the searcher has one, and fewer are pending than slots are free."""
        pending = [trial for trial in self.trials if trial.status == Trial.PENDING]
        alive = [trial for trial in self.trials if not trial.is_finished()]
        free = self.num_slots - len(self.running)
        is_limited = self.limit is not None and len(alive) >= self.limit
        if self.is_finished() or is_limited or len(pending) >= free:
            return False
        self.add(len(self.trials))
        return True

    def add(self, number):
        trial = Trial("trainable", stub=True, trial_id=str(number))
        self.scheduler.on_trial_add(self, trial)
        self.trials.append(trial)
        return trial

    def choose(self):
        """Start what the scheduler chooses; return whether there was anything."""
        alive = sum(not trial.is_finished() for trial in self.trials)
        trial = self.scheduler.choose_trial_to_run(self)
        if trial is None:
            return sum(not trial.is_finished() for trial in self.trials) < alive
        trial.set_status(Trial.RUNNING)
        self.jobs.append((int(trial.trial_id), trial.last_result.get("training_iteration", 0)))
        self.running.append(trial)
        return True

    def step(self, trial, loss=None):
        """Report one iteration and do as is decided; the next step is another trial's."""
        iteration = trial.last_result.get("training_iteration", 0) + 1
        loss = self.curve(int(trial.trial_id), iteration) if loss is None else loss
        result = {"loss": loss, "training_iteration": iteration, "done": False}
        decision = "STOP" if trial.should_stop(result) else None
        decision = decision or self.scheduler.on_trial_result(self, trial, dict(result))
        result["done"] = decision == "STOP"
        trial.update_last_result(result)
        self.reports.append((int(trial.trial_id), iteration))
        self.running.remove(trial)
        self.running.append(trial)
        if decision == "STOP":
            self.stop_trial(trial)
        elif decision == "PAUSE":
            self.leave(trial, Trial.PAUSED)
        return decision

    def fail(self, trial, retry=False):
        """Let a trial fail, and be tried again from its last result if it may."""
        self.scheduler.on_trial_error(self, trial)
        self.leave(trial, Trial.PENDING if retry else Trial.ERROR)
        if retry:
            self.scheduler.on_trial_add(self, trial)

    def leave(self, trial, status):
        if trial in self.running:
            self.running.remove(trial)
        trial.set_status(status)

    def ends(self):
        """Return how each trial ended, and where."""
        return {
            int(trial.trial_id): (
                trial.last_result.get(STOP_REASON),
                trial.last_result.get("training_iteration"),
            )
            for trial in self.trials
        }


def assert_every_iteration_once(swept):
    for number, (_, last) in swept.ends().items():
        steps = [step for which, step in swept.reports if which == number]
        assert steps == list(range(1, (last or 0) + 1)), f"trial {number} did {steps}"
