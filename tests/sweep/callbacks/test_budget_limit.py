"""When a sweep ends early, the hooks driven by hand as Tune calls them."""

import pickle
from types import SimpleNamespace

import pytest

from tune_tf import SweepConfig
from tune_tf.outcome import Outcome

SWEEP = {
    "name": "small",
    "workload": "models:Mine",
    "objective": {"metric": "loss", "mode": "min"},
    "constraints": {"size": "<= 10"},
    "space": {"width": {"int": [1, 9]}},
}


class Sweep:
    """A sweep whose trials do what the test says, on a clock that only the test moves."""

    def __init__(self, state=None, **budget):
        from tune_tf.sweep.callbacks.budget_limit import BudgetLimit
        from tune_tf.sweep.stopper import SweepStopper

        self.now = 100.0
        config = SweepConfig.from_dict({**SWEEP, "budget": {"num_samples": 50, **budget}})
        self.end = SweepStopper("small", config)
        self.outcome_tracker = SimpleNamespace(outcomes={})
        self.keeper = BudgetLimit(config, self.end, self.outcome_tracker, clock=lambda: self.now)
        if state is not None:
            self.keeper.set_state(state)
        self.keeper.setup()
        self.trials = []

    def start(self, **reserved):
        from ray.tune import PlacementGroupFactory
        from ray.tune.experiment import Trial

        trial = Trial("scripted", stub=True, trial_id=f"id{len(self.trials)}")
        trial.placement_group_factory = PlacementGroupFactory([reserved or {"CPU": 1}])
        trial.set_status(Trial.RUNNING)
        self.trials.append(trial)
        self.keeper.on_trial_start(iteration=1, trials=self.trials, trial=trial)
        return trial

    def report(self, trial, loss, size=1.0, done=False):
        """Report as Tune does; return the result as the other callbacks get it."""
        result = {"loss": loss, "size": size, "training_iteration": 1, "done": done}
        result["done"] = self.end(trial.trial_id, result) or done
        self.keeper.on_trial_result(iteration=1, trials=self.trials, trial=trial, result=result)
        trial.update_last_result(result)
        return result

    def finish(self, trial, outcome=Outcome.COMPLETED):
        trial.set_status("TERMINATED")
        self.keeper.on_trial_complete(iteration=1, trials=self.trials, trial=trial)
        self.outcome_tracker.outcomes[trial.trial_id] = outcome

    def run(self, loss, outcome=Outcome.COMPLETED, **more):
        trial = self.start()
        self.report(trial, loss, done=True, **more)
        self.finish(trial, outcome)
        return self.step()

    def step(self, seconds=0.0):
        """Let time pass; return why the sweep is to end."""
        self.now += seconds
        self.end.stop_all()
        self.keeper.on_step_end(iteration=1, trials=self.trials)
        return self.end.reason


@pytest.mark.parametrize(
    ("limit", "what"), [("cpu_hours", "CPU-hours"), ("gpu_hours", "GPU-hours")]
)
def test_hours_of_reserved_devices_are_counted_while_trials_run(limit, what):
    sweep = Sweep(**{limit: 2})
    first, second = sweep.start(CPU=2, GPU=2), sweep.start(CPU=1, GPU=1)
    assert sweep.step(seconds=1800) is None  # 1.5 hours
    sweep.finish(first)
    sweep.step()
    assert sweep.step(seconds=1700) is None  # of the second one alone
    assert sweep.step(seconds=101) == f"its budget of 2 {what} is spent"
    assert second.status == "RUNNING"


def test_a_sweep_ends_when_trials_bring_no_gain():
    sweep = Sweep(patience=3)
    sweep.run(0.5)
    assert [sweep.run(loss) for loss in (0.6, 0.5)] == [None, None]
    assert sweep.run(0.4) is None  # a better one
    assert sweep.run(0.3, Outcome.PRUNED) is None
    assert sweep.run(0.2, size=11) is None
    assert sweep.run(0.7) == "none of the last 3 trials improved loss beyond 0.4"


def test_a_resumed_sweep_goes_on_counting():
    before = Sweep(epochs=4, cpu_hours=1, patience=2)
    before.run(0.5)
    before.run(0.6)
    before.step(seconds=1800)
    trial = before.start()
    before.report(trial, 0.7)
    before.step(seconds=1800)

    state = pickle.loads(pickle.dumps(before.keeper.get_state()))
    sweep = Sweep(state, epochs=4, cpu_hours=1, patience=2)
    assert sweep.keeper.spending.epochs == 3
    assert sweep.keeper.spending.cpu_hours == pytest.approx(0.5)
    sweep.now += 1e6  # nothing is counted while nobody drives the sweep
    sweep.keeper.setup()
    sweep.start()
    assert sweep.step(seconds=1700) is None
    assert sweep.step(seconds=101) == "its budget of 1 CPU-hours is spent"


def test_epochs_of_all_trials_are_counted():
    sweep = Sweep(epochs=3)
    first, second = sweep.start(), sweep.start()
    sweep.report(first, 1.0)
    sweep.report(second, 1.0)
    assert sweep.step() is None
    sweep.report(first, 1.0)
    assert sweep.step() == "its budget of 3 epochs is spent"
