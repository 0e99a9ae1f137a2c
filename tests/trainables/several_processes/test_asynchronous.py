"""Workers that send gradients to a parameter server, driven by hand on a Ray cluster."""

import os
import signal
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import keras
import numpy as np
import pytest
import ray
from ray import tune

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

pytestmark = [pytest.mark.tf, pytest.mark.cluster]

METRICS = ("loss", "accuracy", "val_loss", "val_accuracy")
NUM_BATCHES = 5


class Victims(Workload):
    """Where asynchronous updates are easily wrong.

    Args:
        folder: Where each process leaves its id.
    """

    def __init__(self, folder):
        self.folder = str(folder)

    def __setstate__(self, state):
        vars(self).update(state)
        name = ray.get_runtime_context().get_actor_name() or ""
        if not name.startswith("data-"):  # the node's keeper of data, which trains nothing
            Path(self.folder, f"process-{os.getpid()}").touch()

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

    def callbacks(self, config):
        Path(self.folder, "server").write_text(str(os.getpid()))
        return []

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


def on_one_device(folder, num_epochs, checkpoint=None, learning_rate=0.1):
    """Return the metrics of each epoch of the same trial on one device of this process."""
    config = {"learning_rate": learning_rate}
    workload, replicas = Victims(folder), Replicas(Devices(("CPU:0",)))
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
    kind = trainable(Victims(folder), Asynchronous(1, server_cpus=0), seed=1)
    with driven(kind, {"learning_rate": 0.1}) as trial:
        results = [trial.train() for _ in range(2)]
        told = {"results": results, "folder": folder}
        trial.save_checkpoint(str(folder))
        told["third"] = metrics_of(trial.train())
        trial.reset({"learning_rate": 0.02})
        told["another"] = [metrics_of(trial.train())]
        trial.reset({"learning_rate": 0.1})
        told["again"] = [metrics_of(trial.train()) for _ in range(2)]
        trial.reset({"learning_rate": 0.02})
        trial.load_checkpoint(str(folder))
        told["exploited"] = metrics_of(trial.train())
        trial.reset({"learning_rate": 0.1})
        trial.load_checkpoint(str(folder))
        told["restored"] = metrics_of(trial.train())
    return told


def test_one_worker_gives_the_numbers_of_one_device(alone):
    expected = on_one_device(alone["folder"], 3)

    seen = [*(metrics_of(result) for result in alone["results"]), alone["third"]]
    assert np.allclose(seen, expected, rtol=1e-6)


def test_a_reused_process_gives_the_numbers_of_a_fresh_one(alone):
    assert alone["again"] == [metrics_of(result) for result in alone["results"]]
    expected = on_one_device(alone["folder"], 1, learning_rate=0.02)
    assert np.allclose(alone["another"], expected, rtol=1e-6)


def test_a_restored_trial_goes_on_as_if_it_had_never_ended(alone):
    assert alone["restored"] == alone["third"]


def test_after_an_exploit_the_new_config_wins(alone):
    folder = alone["folder"]
    (third,) = on_one_device(folder, 1, checkpoint=folder, learning_rate=0.02)

    assert np.allclose(third, alone["exploited"], rtol=1e-6)
    assert not np.allclose(third, alone["third"], rtol=1e-3)


def test_the_end_gives_everything_back(alone):
    deadline = time.monotonic() + 60
    all_cpus = ray.cluster_resources()["CPU"]
    while ray.available_resources().get("CPU", 0) < all_cpus and time.monotonic() < deadline:
        threading.Event().wait(0.1)  # Ray takes its moment

    assert ray.available_resources()["CPU"] == all_cpus


def test_gradients_of_one_worker_are_never_stale(alone):
    result = alone["results"][-1]

    assert (result["async/staleness_mean"], result["async/staleness_max"]) == (0, 0)
    assert result["async/gradients_stale"] == 0


@pytest.fixture(scope="module")
def together(ray_cluster, tmp_path_factory):
    """What a trial of two workers told, and its state."""
    folder = tmp_path_factory.mktemp("together")
    kind = trainable(Victims(folder), Asynchronous(2, max_staleness=1, server_cpus=0), seed=1)
    with driven(kind, {"learning_rate": 0.1}) as trial:
        results = [trial.train() for _ in range(3)]
        state = Path(trial.save(str(folder / "state")).checkpoint.path)
    return results, Checkpoint.read(state)


def test_every_batch_is_applied_once(together):
    results, state = together

    assert iterations_of(state) == len(results) * NUM_BATCHES


def test_no_gradient_older_than_the_bound_is_applied(together):
    results, _ = together

    assert max(result["async/staleness_max"] for result in results) <= 1


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize("victim", ["server", "worker"])
def test_a_killed_process_restores_the_trial_from_its_checkpoint(tmp_path, victim):
    class Kill(tune.Callback):
        def on_trial_result(self, iteration, trials, trial, result, **info):
            if result["training_iteration"] == 2 and not hasattr(self, "done"):
                self.done = True
                server = (tmp_path / "server").read_text()
                pids = [path.name.removeprefix("process-") for path in tmp_path.glob("process-*")]
                (worker,) = set(pids) - {server}
                os.kill(int(server if victim == "server" else worker), signal.SIGKILL)

    (trial,) = tune.run(
        trainable(Victims(tmp_path), Asynchronous(1, server_cpus=0), seed=1),
        config={"learning_rate": 0.1},
        stop={"training_iteration": 4},
        checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=1),
        max_failures=1,
        storage_path=str(tmp_path / "sweep"),
        callbacks=[Kill()],
        verbose=0,
    ).trials

    assert (trial.status, trial.num_failures) == ("TERMINATED", 1)
    assert "WorkerLostError" in Path(trial.error_file).read_text()
    assert np.allclose(metrics_of(trial.last_result), on_one_device(tmp_path, 4)[-1], rtol=1e-6)
