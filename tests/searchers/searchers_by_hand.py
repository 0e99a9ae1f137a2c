"""A searcher, and trials that a test runs by hand with Tune's calls."""

import math

from tune_tf.objective import Objective
from tune_tf.space import Choice, Float, Int, SearchSpace

LOSS = Objective("loss", "min")
CONTINUOUS = SearchSpace({"rate": Float(1e-4, 1e-1, log=True), "layer": {"units": Int(4, 64)}})
CONDITIONAL = SearchSpace(
    {
        "optimizer": Choice(["adam", "sgd"]),
        "momentum": Float(0, 0.99, when={"optimizer": "sgd"}),
        "rate": Float(1e-4, 1e-1, log=True),
        "batch": 32,
    }
)


def make(space=CONTINUOUS, **settings):
    from tune_tf.searchers import OptunaSearcher

    return OptunaSearcher(space, LOSS, **{"seed": 7, **settings})


def loss_of(config):
    return math.log10(config["rate"]) ** 2 + config.get("momentum", 0.5)


def run(searcher, trial_ids):
    """Run trials one after the other, each to its end; return their configs."""
    configs = []
    for trial_id in trial_ids:
        config = searcher.suggest(trial_id)
        result = {"loss": loss_of(config), "training_iteration": 1}
        searcher.on_trial_result(trial_id, result)
        searcher.on_trial_complete(trial_id, result | {"done": True})
        configs.append(config)
    return configs


def names(count, start=0):
    return [f"t{i}" for i in range(start, start + count)]
