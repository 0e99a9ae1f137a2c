"""Trial outcomes in Optuna under Tune, with plain trainables and all schedulers."""

import math
import sys
from pathlib import Path

import pytest

from tune_tf.objective import Objective
from tune_tf.outcome import STOP_CAUSE, STOP_REASON
from tune_tf.space import Choice, SearchSpace

LOSS = Objective("loss", "min")
LIMIT = 4
ENDINGS = ("limit", "good", "better", "bad", "returns", "nan", "raises", "flaky")
"""In this order, one after the other: ASHA stops ``bad`` at its first rung."""

SPACE = SearchSpace({"ending": Choice([*ENDINGS])})


class Ending:
    """What a trial reports, step by step; the same for all kinds of trainables."""

    def __init__(self, config):
        self.ending, self.marker = config["ending"], Path(config["folder"], "flaky")
        self.iteration = 0

    def step(self):
        self.iteration += 1
        if self.iteration == 2:
            if self.ending == "raises":
                raise RuntimeError("the user's code raised")
            if self.ending == "flaky" and not self.marker.exists():
                self.marker.touch()
                raise RuntimeError("died once")
        nan = self.ending == "nan" and self.iteration >= 2
        return {"loss": math.nan if nan else 9.0 if self.ending == "bad" else 1 / self.iteration}

    @property
    def returns(self):
        return self.ending == "returns" and self.iteration == 3


def function_trainable(config):
    from ray import tune

    ending = Ending(config)
    while not ending.returns:
        tune.report(ending.step())


def class_trainable():
    from ray import tune

    class Steps(tune.Trainable):
        def setup(self, config):
            self.ending = Ending(config)

        def step(self):
            result = self.ending.step()
            # A class has to say that its end is its own; tune_tf's trainables do.
            own = {"done": True, STOP_REASON: "completed"} if self.ending.returns else {}
            return result | own

        def reset_config(self, new_config):
            self.setup(new_config)
            return True

    return Steps


def ray_asha(max_t):
    from ray.tune.schedulers import AsyncHyperBandScheduler

    return AsyncHyperBandScheduler(
        "training_iteration", "loss", "min", max_t=max_t, grace_period=1, reduction_factor=2
    )


def ours(name):
    from tune_tf.schedulers import scheduler

    more = {"reduction_factor": 2} if name == "asha" else {}
    return scheduler(name, LOSS, max_t=LIMIT, **more)


STOP = {"training_iteration": LIMIT}
SCHEDULERS = {
    "none": lambda: (None, STOP),
    "ray asha": lambda: (ray_asha(LIMIT), None),
    "ray asha and stop": lambda: (ray_asha(9), STOP),
    "our asha": lambda: (ours("asha"), None),
    "our fifo": lambda: (ours("fifo"), None),
}


@pytest.fixture(autouse=True)
def by_value():
    """Send what stands in this file to Ray's workers whole: they cannot import tests."""
    from ray import cloudpickle

    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)
    yield
    cloudpickle.unregister_pickle_by_value(module)


def sweep(tmp_path, trainable, endings=ENDINGS, **settings):
    """Run one trial for each ending; return the searcher and Optuna's trials by ending."""
    from ray import tune

    from tune_tf.searchers import OptunaSearcher

    def with_folder(trial):
        return SPACE.to_optuna()(trial) | {"folder": str(tmp_path)}

    searcher = OptunaSearcher(with_folder, LOSS, "random", seed=1)
    for ending in endings:
        searcher._reconcile().study.enqueue_trial({"ending": ending})
    analysis = tune.run(
        trainable,
        **{
            "search_alg": searcher,
            "num_samples": len(endings),
            "max_concurrent_trials": 1,
            "reuse_actors": True,
            "storage_path": str(tmp_path),
            "raise_on_failed_trial": False,
            "max_failures": 1,
            "verbose": 0,
            **settings,
        },
    )
    begun = (trial for trial in searcher._reconcile().study.trials if trial.params)
    trials = {trial.params["ending"]: trial for trial in begun}
    return searcher, trials, analysis


CASES = [(scheduler, kind, "inline") for scheduler in SCHEDULERS for kind in ("function", "class")]
on_a_cluster = [pytest.mark.slow, pytest.mark.cluster]
CASES += [pytest.param("our asha", "function", "ray_cluster", marks=on_a_cluster)]


@pytest.mark.parametrize(("scheduler", "kind", "under"), CASES)
def test_each_trial_ends_in_optuna_as_it_did_in_tune(scheduler, kind, under, tmp_path, request):
    request.getfixturevalue(under)
    trainable = function_trainable if kind == "function" else class_trainable()
    made, stop = SCHEDULERS[scheduler]()
    _, trials, _ = sweep(tmp_path, trainable, scheduler=made, stop=stop)
    pruning = "asha" in scheduler
    assert {ending: trial.state.name for ending, trial in trials.items()} == {
        "limit": "COMPLETE",
        "good": "COMPLETE",
        "better": "COMPLETE",
        "bad": "PRUNED" if pruning else "COMPLETE",
        "returns": "COMPLETE",
        "nan": "FAIL",
        "raises": "FAIL",
        "flaky": "COMPLETE",
    }
    assert {ending: trial.user_attrs[STOP_REASON] for ending, trial in trials.items()} == {
        "limit": "completed",
        "good": "completed",
        "better": "completed",
        "bad": "pruned" if pruning else "completed",
        "returns": "completed",
        "nan": "diverged",
        "raises": "error",
        "flaky": "completed",
    }
    assert trials["limit"].intermediate_values == {1: 1.0, 2: 1 / 2, 3: 1 / 3, 4: 1 / 4}
    assert trials["limit"].value == 1 / 4
    assert trials["bad"].value == 9.0
    assert min(trials["bad"].intermediate_values) == 1
    assert trials["nan"].intermediate_values == {1: 1.0}
    assert "loss is nan at iteration" in trials["nan"].user_attrs[STOP_CAUSE]
    assert "the user's code raised" in trials["raises"].user_attrs[STOP_CAUSE]
    assert set(trials["flaky"].intermediate_values) == {1, 2, 3, 4}


@pytest.mark.usefixtures("inline")
@pytest.mark.parametrize("config", [None, {"other": 1}], ids=["no config", "config"])
def test_the_limit_is_known_whether_tune_tells_it_or_not(config, tmp_path):
    """Tune tells stop criteria to a searcher only if it was given a config."""
    _, trials, _ = sweep(
        tmp_path,
        class_trainable(),
        ("limit", "bad"),
        stop={"loss": 5.0},
        scheduler=ray_asha(LIMIT),
        config=config,
    )
    assert trials["bad"].user_attrs[STOP_REASON] == "completed"
