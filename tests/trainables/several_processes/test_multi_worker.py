"""A trial in two processes, driven by hand on a Ray cluster."""

import re
import sys

import keras
import numpy as np
import pytest
import ray

from tune_tf.data import rows_of
from tune_tf.errors import TuneTfError
from tune_tf.parallelism import MultiWorker
from tune_tf.trainables import trainable
from tune_tf.trainables.trial_settings import seed_of_trial
from tune_tf.training.devices import Devices
from tune_tf.training.input.device_rows import place_rows
from tune_tf.training.loop import GraphLoop
from tune_tf.training.replicas.replicas import Replicas
from tune_tf.training.seeds import seeded_generators
from tune_tf.workload import Data, Workload

ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Ray's workers cannot import it

pytestmark = [pytest.mark.tf, pytest.mark.cluster, pytest.mark.slow]

METRICS = ("loss", "accuracy", "val_loss", "val_accuracy")


class Uneven(Workload):
    """Where several workers are easily wrong: clipping, momentum and a last batch of one row."""

    def load_data(self, config):
        import tensorflow as tf  # not before the workers are connected

        rng = np.random.default_rng(0)
        x = rng.normal(size=(81, 6)).astype("float32")
        y = (x @ rng.normal(size=(6, 3))).argmax(-1).astype("int32")
        if "dataset" in config:
            train, validation = (
                tf.data.Dataset.from_tensor_slices(part)
                for part in ((x[:65], y[:65]), (x[65:], y[65:]))
            )
            return Data(train.shuffle(65, seed=config["dataset"]).batch(16), validation.batch(16))
        return Data(train=(x[:65], y[:65]), validation=(x[65:], y[65:]))

    def build_model(self, config):
        model = keras.Sequential(
            [
                keras.Input((6,)),
                keras.layers.Dense(8, "relu", kernel_regularizer=keras.regularizers.L2(1e-3)),
                keras.layers.BatchNormalization(synchronized=True),
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
        if "log" not in config:
            return []
        stopping = keras.callbacks.EarlyStopping("loss", patience=1, min_delta=1e6)
        return [stopping, keras.callbacks.CSVLogger(config["log"], append=True)]

    def global_batch_size(self, config):
        return config.get("batch_size", 16)


def on_one_device(config, num_epochs, checkpoint=None):
    """Return the metrics of each epoch of the same trial on one device of this process."""
    from tune_tf.training.checkpoint import Checkpoint

    workload, replicas = Uneven(), Replicas(Devices(("CPU:0",)))
    loop = GraphLoop(replicas)
    seed = seed_of_trial(1, "default", "default")
    with seeded_generators(seed):
        rows = place_rows(rows_of(workload.load_data(config)), replicas)
    loop.start(workload, config, rows, seed)
    if checkpoint is not None:
        loop.restore(Checkpoint.read(checkpoint))
    return [metrics_of(loop.epoch()) for _ in range(num_epochs)]


def metrics_of(result):
    return [float(result[name]) for name in METRICS]


def refusal_of(act):
    with pytest.raises(TuneTfError, match=r"\w") as refused:
        act()
    return f"{type(refused.value).__name__}: {refused.value}"


@pytest.fixture(scope="module")
def history(ray_cluster, tmp_path_factory):
    """What a trial, a checkpoint of it and the trials after it in the same processes gave."""
    folder = tmp_path_factory.mktemp("checkpoint")
    trial = trainable(Uneven(), MultiWorker(2), seed=1)(config={"learning_rate": 0.1})
    told = {"first": [metrics_of(trial.train()) for _ in range(2)], "folder": folder}
    trial.save_checkpoint(str(folder))
    told["third"] = metrics_of(trial.train())
    trial.reset({"learning_rate": 0.02})
    trial.train()
    trial.reset({"learning_rate": 0.1})
    told["again"] = [metrics_of(trial.train()) for _ in range(2)]
    trial.reset({"learning_rate": 0.1})
    trial.load_checkpoint(str(folder))
    told["restored"] = metrics_of(trial.train())
    trial.reset({"learning_rate": 0.1, "log": str(folder / "log.csv")})
    told["stopping"] = [trial.train() for _ in range(2)]
    trial.reset({"learning_rate": 0.1, "dataset": 5})
    told["of a data set"] = [metrics_of(trial.train()) for _ in range(2)]
    told["refusals"] = [
        refusal_of(lambda: trial.load_checkpoint(str(folder / "none"))),
        refusal_of(lambda: trial.reset({"learning_rate": 0.1, "batch_size": 1})),
        refusal_of(trial.train),
    ]
    trial.stop()
    return told


def test_two_workers_give_the_numbers_of_one_device(history):
    expected = on_one_device({"learning_rate": 0.1}, 3)

    assert np.allclose([*history["first"], history["third"]], expected, rtol=1e-5)


def test_workers_share_the_batches_of_a_data_set(history):
    of_one = on_one_device({"learning_rate": 0.1, "dataset": 5}, 2)

    assert np.allclose(history["of a data set"], of_one, rtol=1e-5)
    assert not np.allclose(history["of a data set"], history["first"], rtol=1e-5)


def test_a_reused_worker_gives_the_numbers_of_a_fresh_one(history):
    assert history["again"] == history["first"]


def test_workers_and_one_device_go_on_from_a_checkpoint_of_two_workers(history):
    (third,) = on_one_device({"learning_rate": 0.1}, 1, checkpoint=history["folder"])

    assert history["restored"] == history["third"]
    assert np.allclose(third, history["third"], rtol=1e-5)


def test_a_callback_ends_the_trial_in_all_workers_and_one_of_them_writes_files(history):
    assert [result["done"] for result in history["stopping"]] == [False, True]
    assert history["stopping"][1]["stop_reason"] == "completed"
    assert (history["folder"] / "log.csv").read_text().count("\n") == 3
    assert re.fullmatch(r"CPU:0 on \S+; CPU:0 on \S+", history["stopping"][0]["devices"])


@pytest.mark.parametrize(
    ("number", "message"),
    [
        pytest.param(0, "CheckpointError: there is no checkpoint at .*none", id="no checkpoint"),
        pytest.param(1, "WorkloadError: .* 1 is smaller than the 2 replicas", id="rows"),
        pytest.param(2, "WorkerLostError: the workers of this trial have ended", id="ended"),
    ],
)
def test_what_cannot_be_done_is_told(history, number, message):
    assert re.search(message, history["refusals"][number])
