"""Trials, each of another structure, through actors that are used again."""

import math
from collections import Counter, defaultdict

import numpy as np
import psutil
import pytest
from ray import tune

from tune_tf.trainables import trainable
from tune_tf.trainables.memory.recycling import ActorRecycler, Recycling
from tune_tf.workload import Data, Workload

pytestmark = [pytest.mark.tf, pytest.mark.cluster, pytest.mark.slow]

NUM_TRIALS = 9
MAX_PROGRAMS = 4
BOUND_MB = 150


class Memory(tune.Callback):
    """Keeps the resident memory of each process after each of its trials, in megabytes."""

    def __init__(self):
        self.of_process = defaultdict(list)

    def on_trial_result(self, iteration, trials, trial, result, **info):
        resident = psutil.Process(result["pid"]).memory_info().rss
        self.of_process[result["pid"]].append(resident / 1e6)


@pytest.fixture(scope="module")
def swept(ray_cluster, tmp_path_factory):
    """The trials of a sweep over widths, one at a time, and the memory of their processes."""

    class Tiny(Workload):  # of a function, so that Ray sends it to its workers whole
        def load_data(self, config):
            x = np.random.default_rng(0).normal(size=(32, 4)).astype("float32")
            return Data(train=(x, x.sum(1)))

        def build_model(self, config):
            import keras

            hidden = [keras.layers.Dense(config["width"], "relu") for _ in range(2)]
            model = keras.Sequential([keras.Input((4,)), *hidden, keras.layers.Dense(1)])
            model.compile("adam", "mse")
            return model

    memory = Memory()
    analysis = tune.run(
        trainable(Tiny, seed=1, recycling=Recycling(max_programs=MAX_PROGRAMS)),
        config={"width": tune.grid_search(list(range(1, NUM_TRIALS + 1)))},
        stop={"training_iteration": 1},
        callbacks=[ActorRecycler(), memory],
        reuse_actors=True,
        max_concurrent_trials=1,
        raise_on_failed_trial=False,
        storage_path=str(tmp_path_factory.mktemp("sweep")),
        verbose=0,
    )
    return analysis.trials, memory.of_process


def test_every_trial_ends_with_a_finite_loss(swept):
    trials, _ = swept

    assert Counter(trial.status for trial in trials) == {"TERMINATED": NUM_TRIALS}
    assert all(math.isfinite(trial.last_result["loss"]) for trial in trials)


def test_a_process_serves_as_many_structures_as_it_may(swept):
    trials, _ = swept
    served = Counter(trial.last_result["pid"] for trial in trials)

    assert sorted(served.values()) == [1, MAX_PROGRAMS, MAX_PROGRAMS]


def test_the_memory_of_the_processes_is_bounded(swept):
    _, memory = swept
    peaks = [max(resident) for resident in memory.values()]

    assert max(resident[-1] - resident[0] for resident in memory.values()) < BOUND_MB
    assert max(peaks) - min(peaks) < BOUND_MB
