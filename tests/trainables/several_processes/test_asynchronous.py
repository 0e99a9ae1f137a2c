"""Workers that send gradients to a parameter server, driven by hand on a Ray cluster."""

import sys
from contextlib import contextmanager
from pathlib import Path

import keras
import numpy as np
import pytest
import ray

from tune_tf.data import rows_of
from tune_tf.parallelism import Asynchronous
from tune_tf.trainables import trainable
from tune_tf.trainables.trial_settings import seed_of_trial
from tune_tf.training.checkpoint import Checkpoint
from tune_tf.training.devices import Devices
from tune_tf.training.input.device_rows import place_rows
from tune_tf.training.loop import GraphLoop
from tune_tf.training.replicas.replicas import Replicas
from tune_tf.workload import Data, Workload

ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Ray's workers cannot import it

pytestmark = [pytest.mark.tf, pytest.mark.cluster, pytest.mark.slow]

METRICS = ("loss", "accuracy", "val_loss", "val_accuracy")
NUM_BATCHES = 5


class Delicate(Workload):
    """Where asynchronous updates are easily wrong."""

    def load_data(self, config):
        rng = np.random.default_rng(0)
        x = rng.normal(size=(81, 6)).astype("float32")
        y = (x @ rng.normal(size=(6, 3))).argmax(-1).astype("int32")
        return Data(train=(x[:65], y[:65]), validation=(x[65:], y[65:]))

    def build_model(self, config):
        model = keras.Sequential(
            [
                keras.Input((6,)),
                keras.layers.Dense(8, "relu", kernel_regularizer=keras.regularizers.L2(1e-3)),
                keras.layers.BatchNormalization(),
                keras.layers.Dropout(0.2),
                keras.layers.Dense(3),
            ]
        )
        model.compile(
            keras.optimizers.SGD(config["learning_rate"], momentum=0.9, global_clipnorm=0.3),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
        return model

    def global_batch_size(self, config):
        return 16


@contextmanager
def driven(kind, config):
    """Drive a trial by hand; give back what it reserved, whatever happens."""
    trial = kind(config=config)
    try:
        yield trial
    finally:
        trial.stop()


def metrics_of(result):
    return [float(result[name]) for name in METRICS]


def iterations_of(checkpoint):
    """Return how many updates the optimizer of a checkpoint has seen."""
    values = dict(zip(checkpoint.names, (*checkpoint.model, *checkpoint.optimizer), strict=True))
    return next(int(value) for name, value in values.items() if name.path.endswith("iteration"))


def on_one_device(num_epochs, checkpoint=None, learning_rate=0.1):
    """Return the metrics of each epoch of the same trial on one device of this process."""
    config = {"learning_rate": learning_rate}
    workload, replicas = Delicate(), Replicas(Devices(("CPU:0",)))
    loop = GraphLoop(replicas)
    rows = place_rows(rows_of(workload.load_data(config)), replicas)
    loop.start(workload, config, rows, seed_of_trial(1, "default", "default"))
    if checkpoint is not None:
        loop.restore(Checkpoint.read(checkpoint))
    return [metrics_of(loop.epoch()) for _ in range(num_epochs)]


@pytest.fixture(scope="module")
def alone(ray_cluster, tmp_path_factory):
    """What a trial of one worker, a checkpoint of it and the trials after it gave."""
    folder = tmp_path_factory.mktemp("alone")
    kind = trainable(Delicate(), Asynchronous(1), seed=1)
    with driven(kind, {"learning_rate": 0.1}) as trial:
        results = [trial.train() for _ in range(2)]
        told = {"results": results, "folder": folder}
        trial.save_checkpoint(str(folder))
        told["third"] = metrics_of(trial.train())
        trial.reset({"learning_rate": 0.02})
        trial.load_checkpoint(str(folder))
        told["exploited"] = metrics_of(trial.train())
        trial.reset({"learning_rate": 0.1})
        told["again"] = [metrics_of(trial.train()) for _ in range(2)]
        trial.reset({"learning_rate": 0.1})
        trial.load_checkpoint(str(folder))
        told["restored"] = metrics_of(trial.train())
    return told


def test_one_worker_gives_the_numbers_of_one_device(alone):
    expected = on_one_device(3)

    seen = [*(metrics_of(result) for result in alone["results"]), alone["third"]]
    assert np.allclose(seen, expected, rtol=1e-6)


def test_a_reused_process_gives_the_numbers_of_a_fresh_one(alone):
    assert alone["again"] == [metrics_of(result) for result in alone["results"]]


def test_a_restored_trial_goes_on_as_if_it_had_never_ended_or_by_its_new_config(alone):
    folder = alone["folder"]
    (third,) = on_one_device(1, checkpoint=folder, learning_rate=0.02)

    assert alone["restored"] == alone["third"]
    assert np.allclose(third, alone["exploited"], rtol=1e-6)
    assert not np.allclose(third, alone["third"], rtol=1e-3)


@pytest.fixture(scope="module")
def together(ray_cluster, tmp_path_factory):
    """What a trial of two workers told, and its state."""
    folder = tmp_path_factory.mktemp("together")
    kind = trainable(Delicate(), Asynchronous(2, max_staleness=1), seed=1)
    with driven(kind, {"learning_rate": 0.1}) as trial:
        results = [trial.train() for _ in range(3)]
        state = Path(trial.save(str(folder / "state")).checkpoint.path)
    return results, Checkpoint.read(state)


def test_every_batch_is_applied_once_and_no_gradient_older_than_the_bound(together):
    results, state = together

    assert iterations_of(state) == len(results) * NUM_BATCHES
    assert max(result["async/staleness_max"] for result in results) <= 1
    assert all("async/gradients_stale" in result for result in results)
