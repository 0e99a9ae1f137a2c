"""Trials in one process, each with the data of its own config."""

import keras
import numpy as np
import pytest

from tune_tf.data import prepared
from tune_tf.trainables import trainable
from tune_tf.workload import Data, Workload

pytestmark = pytest.mark.tf


class Level(Workload):
    """Rows of one level, read from a config in some way; the loss is its square.

    Args:
        read: Returns the level of a config; it is given the workload too.
    """

    def __init__(self, read=lambda self, config: config["level"]):
        self.read = read
        self.scales = {}

    def load_data(self, config):
        level = float(self.read(self, config))
        x = np.full((4, 1), level, "float32")
        return Data(train=(x, 0 * x), validation=(x, 0 * x))

    def build_model(self, config):
        ones = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")
        model = keras.Sequential([keras.Input((1,)), ones])
        model.compile(keras.optimizers.SGD(0.0), "mse")
        return model

    def global_batch_size(self, config):
        return 4


class BySelf(Level):
    """The model multiplies by what ``load_data`` has set."""

    def load_data(self, config):
        self.scale = config["level"]
        self.scales["in place"] = config["level"]
        return super().load_data({"level": 1})

    def build_model(self, config):
        scale = keras.initializers.Constant(self.scale * self.scales["in place"] / config["level"])
        ones = keras.layers.Dense(1, use_bias=False, kernel_initializer=scale)
        model = keras.Sequential([keras.Input((1,)), ones])
        model.compile(keras.optimizers.SGD(0.0), "mse")
        self.scale = self.scales["in place"] = -1  # of no other trial's business
        return model


class ByRowsOfSelf(BySelf):
    """Rows are multiplied one by one, by what ``load_data`` has set."""

    build_model = Level.build_model

    def per_example(self, config, *, training):
        return lambda example, seed: (example[0] * self.scale, example[1])


def of_records(self, config):
    def row(record):
        return np.float32(record * config["level"])

    return prepared([1.0, 1.0], row)[0]


WORKLOADS = {
    "records": Level(of_records),
    "self": BySelf(),
    "single rows by self": ByRowsOfSelf(),
}


@pytest.fixture
def one_device(monkeypatch):
    """Let trials be begun in the process of the tests, whose devices are set already."""
    from tune_tf.training import devices

    monkeypatch.setattr(devices, "claim_devices", lambda *given: devices.Devices(("CPU:0",)))


@pytest.mark.usefixtures("one_device")
@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=WORKLOADS.keys())
def test_each_trial_in_a_process_trains_on_its_own_data(workload):
    trial = trainable(workload, seed=1)(config={"level": 2})
    losses = [trial.train()["loss"]]
    for level, other in ((2, 1), (3, 0), (2, 0)):
        assert trial.reset({"level": level, "other": other})
        losses.append(trial.train()["loss"])
    trial.stop()

    assert losses == [4, 4, 9, 4]


def test_an_exported_model_has_what_load_data_set(tmp_path):
    from tune_tf.training.export import trained_model

    made = trainable(BySelf())(config={"level": 3})
    loss = made.train()["val_loss"]
    made.save_checkpoint(str(tmp_path))
    made.stop()
    model = trained_model(BySelf(), {"level": 3}, tmp_path)

    rows = np.ones((4, 1), "float32")
    assert loss == 9.0
    assert np.mean(model.predict(rows, verbose=0) ** 2) == 9.0
