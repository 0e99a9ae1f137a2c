"""Private interfaces of Ray Tune; fails if a release of Ray moves them."""

import inspect
import pickle
from types import SimpleNamespace

import pytest
from ray.tune import schedulers, stopper
from ray.tune.execution.tune_controller import TuneController
from ray.tune.experiment import Trial

from tune_tf.tune_internals import controller as calls
from tune_tf.tune_internals.controller import ObservedStopper
from tune_tf.tune_internals.scheduler_limits import has_reached_limit

LIMITED = [
    name
    for name in schedulers.__all__
    if name != "TrialScheduler"
    and "max_t" in inspect.signature(getattr(schedulers, name)).parameters
]


@pytest.fixture
def trial(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Trial("simulated", stub=True, trial_id="t0", stopping_criterion={"steps": 7})


def made(name, trial, **settings):
    given = {"metric": "loss", "mode": "min", "max_t": 9, "time_attr": "epochs", **settings}
    kind = getattr(schedulers, name)
    known = inspect.signature(kind).parameters
    scheduler = kind(**{key: value for key, value in given.items() if key in known})
    scheduler.on_trial_add(SimpleNamespace(search_alg=None), trial)
    return scheduler


@pytest.mark.parametrize("name", LIMITED)
@pytest.mark.parametrize("wrapped", [False, True], ids=["alone", "wrapped"])
def test_a_trial_at_the_schedulers_limit_has_reached_it(name, wrapped, trial):
    scheduler = made(name, trial)
    if wrapped:
        scheduler = schedulers.ResourceChangingScheduler(scheduler)
    assert has_reached_limit(scheduler, trial, {"epochs": 9, "training_iteration": 1})
    assert has_reached_limit(scheduler, trial, {"epochs": 10})
    assert not has_reached_limit(scheduler, trial, {"epochs": 8, "training_iteration": 9})
    assert not has_reached_limit(scheduler, trial, {"training_iteration": 9})


@pytest.mark.parametrize("name", LIMITED)
def test_a_scheduler_that_lets_the_last_trials_run_has_no_limit(name, trial):
    scheduler = made(name, trial)
    scheduler._stop_last_trials = False
    assert not has_reached_limit(scheduler, trial, {"epochs": 9})


@pytest.mark.parametrize(
    "scheduler",
    [
        schedulers.FIFOScheduler(),
        schedulers.MedianStoppingRule(),
        schedulers.PopulationBasedTraining(hyperparam_mutations={"rate": [1.0]}),
        schedulers.ResourceChangingScheduler(),
        None,
    ],
    ids=lambda scheduler: type(scheduler).__name__,
)
def test_a_scheduler_without_a_limit_has_none(scheduler, trial):
    assert not has_reached_limit(scheduler, trial, {"training_iteration": 10**6})


def test_a_bracket_whose_milestones_are_rounded_ends_below_max_t(trial):
    scheduler = made("HyperBandForBOHB", trial, max_t=10)  # 1, 3, 9: 10 is never reached
    assert not has_reached_limit(scheduler, trial, {"epochs": 8})
    assert has_reached_limit(scheduler, trial, {"epochs": 9})


@pytest.mark.parametrize("max_iter", [1, 3])
def test_what_a_stopper_says_is_passed_on_and_noted(max_iter):
    observed = ObservedStopper(stopper.MaximumIterationStopper(max_iter))
    said = [observed("t0", {"training_iteration": at}) for at in range(1, max_iter + 1)]
    assert said == [False] * (max_iter - 1) + [True]
    assert observed.has_ended("t0")
    assert not observed.has_ended("t1")
    assert observed._max_iter == max_iter
    assert not observed.stop_all()


def test_a_snapshot_holds_the_users_stopper_and_needs_no_tune_tf():
    pickled = pickle.dumps(ObservedStopper(stopper.TimeoutStopper(3)))
    assert b"tune_tf" not in pickled
    assert type(pickle.loads(pickled)) is stopper.TimeoutStopper


class Asking(TuneController):
    """A controller without anything but what is asked for."""

    def __init__(self, **attributes):
        vars(self).update(attributes)

    def call(self, function, *args):
        return function(*args)


def test_the_calling_controller_is_asked_once(trial):
    controller = Asking(_stopper=stopper.NoopStopper(), _scheduler_alg=None)
    controller.call(calls.observe_stops)
    first = controller._stopper
    controller.call(calls.observe_stops)
    assert isinstance(first, ObservedStopper)
    assert controller._stopper is first
    result = {"loss": 1.0, "done": True}
    first("t0", dict(result))
    assert controller.call(calls.is_complete, trial, result)
    first("t0", {"loss": 1.0})
    assert not controller.call(calls.is_complete, trial, result)
    assert controller.call(calls.is_complete, trial, {"steps": 7})


def test_outside_of_tune_only_stop_criteria_tell(trial):
    calls.observe_stops()
    assert calls.calling_controller() is None
    assert not calls.is_complete(trial, {"done": True})
    assert calls.is_complete(trial, {"steps": 7})
    assert calls.compared_metrics() == frozenset()


def test_the_metrics_that_tune_compares_are_all_that_anybody_was_told(trial):
    searching = SimpleNamespace(metric="accuracy")
    scheduling = SimpleNamespace(metric="loss")
    controller = Asking(_metric="_metric", _scheduler_alg=scheduling, _search_alg=searching)
    assert controller.call(calls.compared_metrics) == {"loss", "accuracy"}
