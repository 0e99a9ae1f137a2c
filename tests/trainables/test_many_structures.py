"""Trials, each of another structure, through actors that are used again."""

import math
from collections import Counter

import numpy as np
import pytest
from ray import tune

from tune_tf.trainables import trainable
from tune_tf.trainables.memory.recycling import ActorRecycler, Recycling
from tune_tf.workload import Data, Workload

pytestmark = [pytest.mark.tf, pytest.mark.cluster, pytest.mark.slow]

NUM_TRIALS = 9
MAX_PROGRAMS = 4


@pytest.fixture(scope="module")
def swept(ray_cluster, tmp_path_factory):
    """The trials of a sweep over widths, one at a time."""

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

    analysis = tune.run(
        trainable(Tiny, seed=1, recycling=Recycling(max_programs=MAX_PROGRAMS)),
        config={"width": tune.grid_search(list(range(1, NUM_TRIALS + 1)))},
        stop={"training_iteration": 1},
        callbacks=[ActorRecycler()],
        reuse_actors=True,
        max_concurrent_trials=1,
        raise_on_failed_trial=False,
        storage_path=str(tmp_path_factory.mktemp("sweep")),
        verbose=0,
    )
    return analysis.trials


def test_every_trial_ends_with_a_finite_loss(swept):
    assert Counter(trial.status for trial in swept) == {"TERMINATED": NUM_TRIALS}
    assert all(math.isfinite(trial.last_result["loss"]) for trial in swept)


def test_a_process_serves_as_many_structures_as_it_may(swept):
    served = Counter(trial.last_result["pid"] for trial in swept)

    assert sorted(served.values()) == [1, MAX_PROGRAMS, MAX_PROGRAMS]
