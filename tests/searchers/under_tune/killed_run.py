"""Tuner script that kills itself with SIGKILL once; a test restores it."""

import os
import signal
import sys
from pathlib import Path

import ray
from killed_driver import bring_up_to_date
from ray import tune
from ray.tune.search import ConcurrencyLimiter, Repeater

from tune_tf.objective import Objective
from tune_tf.searchers import OptunaSearcher
from tune_tf.space import Float, SearchSpace

WRAPPERS = {
    "limiter": lambda searcher: ConcurrencyLimiter(searcher, 2),
    "repeater": lambda searcher: ConcurrencyLimiter(Repeater(searcher, repeat=2), 2),
}
NUM_SAMPLES = 6


class Counting(OptunaSearcher):
    """Searcher with a signature and an attribute of its own."""

    def __init__(self, folder):
        space = SearchSpace({"rate": Float(1, 2)})
        super().__init__(space, Objective("loss", "min"), "random", seed=1)
        self.num_ended = 0

    def on_trial_complete(self, trial_id, result=None, error=False):
        self.num_ended += 1
        super().on_trial_complete(trial_id, result, error)


class DieOnce(tune.Callback):
    """Ends the driver by a function when three trials have ended, unless it did before."""

    def __init__(self, folder, die):
        self.marker, self.die, self.num_ended = Path(folder, "died"), die, 0

    def on_trial_complete(self, iteration, trials, trial, **info):
        self.num_ended += 1

    def on_step_end(self, iteration, trials, **info):
        if self.num_ended == 3 and not self.marker.exists():
            self.marker.touch()
            bring_up_to_date(trials[0])
            self.die()


def kill():
    """End this process at once."""
    os.kill(os.getpid(), signal.SIGKILL)


def train(config):
    """Report twice."""
    for iteration in (1, 2):
        tune.report({"loss": config["rate"] / iteration + config.get("__trial_index__", 0)})


def run(folder, wrapper, die):
    """Run the Tuner until it dies."""
    tune.Tuner(
        train,
        tune_config=tune.TuneConfig(
            search_alg=WRAPPERS[wrapper](Counting(folder)),
            num_samples=NUM_SAMPLES,
            reuse_actors=True,
        ),
        run_config=tune.RunConfig(
            name="run", storage_path=folder, callbacks=[DieOnce(folder, die)], verbose=0
        ),
    ).fit()


if __name__ == "__main__":
    os.environ["TUNE_GLOBAL_CHECKPOINT_S"] = "0"
    folder, address, wrapper = sys.argv[1:]
    ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    run(folder, wrapper, kill)
