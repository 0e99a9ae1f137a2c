"""When a sweep ends early, the hooks driven by hand as Tune calls them."""

from types import SimpleNamespace

import pytest

from tune_tf import SweepConfig
from tune_tf.outcome import Outcome
from tune_tf.record import Record

SWEEP = {
    "name": "small",
    "workload": "models:Mine",
    "objective": {"metric": "loss", "mode": "min"},
    "constraints": {"size": "<= 10"},
    "space": {"width": {"int": [1, 9]}},
}


class Sweep:
    """A sweep whose trials do what the test says, on a clock that only the test moves."""

    def __init__(self, record=None, *, reproducible=False, **budget):
        from tune_tf.sweep.callbacks.budget_limit import BudgetLimit
        from tune_tf.sweep.stopper import SweepStopper

        self.now = 100.0
        settings = {**SWEEP, "budget": {"num_samples": 50, **budget}, "reproducible": reproducible}
        config = SweepConfig.from_dict(settings)
        self.end = SweepStopper(config)
        self.observer = SimpleNamespace(outcomes={})
        self.keeper = BudgetLimit(
            config, self.end, self.observer, clock=lambda: self.now, record=record
        )
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
        self.observer.outcomes[trial.trial_id] = outcome

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


def test_epochs_of_all_trials_are_counted():
    sweep = Sweep(epochs=3)
    first, second = sweep.start(), sweep.start()
    sweep.report(first, 1.0)
    sweep.report(second, 1.0)
    assert sweep.step() is None
    sweep.report(first, 1.0)
    assert sweep.step() == "its budget of 3 epochs is spent"


class Sessions:
    """Record of a sweep with earlier sessions, on a clock of its own."""

    def __init__(self, folder):
        self.now, self.num_trials = 0.0, 0
        self.record = Record(folder, clock=lambda: self.now)

    def begin(self, **budget):
        self.now += 1
        self.record.begin_session(budget)
        return self

    def run(self, *losses, outcome=Outcome.COMPLETED, size=1.0):
        """Run a trial for an epoch each."""
        number, self.num_trials = self.num_trials, self.num_trials + 1
        self.now += 1
        self.record.record_creation(f"t{number}", number, {}, name=f"t{number}", tag="")
        for epoch, loss in enumerate(losses, start=1):
            metrics = {"loss": loss, "size": size, "training_iteration": epoch}
            self.record.record_result(number, metrics)
        self.record.record_end(f"t{number}", outcome)
        return self


@pytest.fixture
def sessions(tmp_path):
    sessions = Sessions(tmp_path)
    with sessions.record:
        yield sessions


def test_a_resumed_sweep_goes_on_counting_what_is_spent(sessions):
    sessions.begin().run(0.5, 0.4).run(0.6, outcome=Outcome.INTERRUPTED)
    sessions.record.record_spending(1800.0, 0.5, 0.25)
    sweep = Sweep(sessions.begin().record, epochs=4, cpu_hours=1)
    assert vars(sweep.keeper.spending) == {
        "epochs": 3,
        "time_s": 1800.0,
        "cpu_hours": 0.5,
        "gpu_hours": 0.25,
    }
    sweep.now += 1e6  # nothing is counted while nobody drives the sweep
    sweep.keeper.setup()
    trial = sweep.start()
    assert sweep.step(seconds=1700) is None
    assert sweep.step(seconds=101) == "its budget of 1 CPU-hours is spent"
    sweep.report(trial, 0.5)
    assert sessions.record.history.sessions[-1].cpu_hours == pytest.approx(1, abs=0.01)
    assert sweep.keeper.spending.epochs == 4


def test_the_patience_goes_on_where_an_earlier_session_left_it(sessions):
    sessions.begin(patience=3).run(0.5).run(0.6).begin(patience=3).run(0.7, outcome=Outcome.ERROR)
    sweep = Sweep(sessions.begin(patience=3).record, patience=3)
    assert sweep.step() is None
    assert sweep.run(0.6) is None
    assert sweep.run(0.5) == "none of the last 3 trials improved loss beyond 0.5"


def test_the_patience_begins_anew_with_another_budget_but_the_best_value_stays(sessions):
    sessions.begin(patience=2).run(0.5).run(0.6).run(0.7)
    sessions.record.record_end_reason("none of the last 2 trials improved loss beyond 0.5")
    sweep = Sweep(sessions.begin(patience=2, num_samples=60).record, patience=2)
    assert sweep.step() is None
    assert sweep.run(0.6) is None
    assert sweep.run(0.55) == "none of the last 2 trials improved loss beyond 0.5"


@pytest.mark.parametrize(
    ("size", "budget", "reason"),
    [
        (1.0, {}, "a trial's loss 0.3 reached its target of 0.4"),
        (11.0, {}, None),  # violates the constraints
        (1.0, {"num_samples": 60}, None),  # the sweep was extended since
    ],
)
def test_a_target_that_was_reached_before_a_kill_ends_the_sweep(sessions, size, budget, reason):
    sessions.begin().run(0.3, size=size)
    sweep = Sweep(sessions.begin(**budget).record, target=0.4)
    assert sweep.step() == reason


@pytest.mark.parametrize(
    ("budget", "reproducible", "reason"),
    [({}, False, "by hand"), ({"epochs": 9}, False, None), ({}, True, None)],
    ids=["goes on", "extended", "follows from the results"],
)
def test_a_sweep_that_was_ended_stays_so_unless_it_is_extended(
    sessions, budget, reproducible, reason
):
    sessions.begin()
    sessions.record.record_end_reason("by hand")
    sweep = Sweep(sessions.begin(**budget).record, reproducible=reproducible)
    assert sweep.end.reason == reason


def test_what_ends_a_sweep_is_recorded_at_once(sessions):
    sweep = Sweep(sessions.begin().record, epochs=1)
    sweep.report(sweep.start(), 0.5)
    sweep.step()
    assert sessions.record.history.sessions[-1].ended_early == "its budget of 1 epochs is spent"
