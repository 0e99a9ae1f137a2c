"""Trials on fake GPUs have the numbers of the CPU, and are where they should be."""

import keras
import numpy as np
import pytest
from fake_gpus import FakeGpus

from tune_tf import Data, Mirrored, ModelParallel, TrialResources, Workload, trainable

pytestmark = pytest.mark.tf


def cpus_of(variable):
    """Return the logical CPUs of a variable's copies."""
    return " ".join(each.device[-5:] for each in getattr(variable, "values", [variable]))


DEVICES = []  # of the weights of each model, by layer; what a workload itself keeps is reset


class Line(Workload):
    """Fits a line."""

    jit_compile = False

    def load_data(self, config):
        x = np.random.default_rng(0).random((24, 3), "float32")
        return Data((x, x.sum(1)), (x[:8], x[:8].sum(1)))

    def build_model(self, config):
        model = keras.Sequential([keras.Input((3,)), *map(keras.layers.Dense, (2, 1))])
        model.compile("sgd", "mse", jit_compile=self.jit_compile)
        DEVICES.append([cpus_of(layer.kernel.value) for layer in model.layers])
        return model

    def global_batch_size(self, config):
        return 8


@pytest.fixture
def train(monkeypatch):
    """Return a function that trains two epochs of a trial; it returns losses and devices."""

    def train(gpus, parallelism=None, **settings):
        monkeypatch.setattr("tune_tf.training.devices._claimed", {})
        DEVICES.clear()
        resources = TrialResources(cpus=2, gpus=gpus)
        kind = trainable(
            Line, parallelism or Mirrored(gpus or 1), resources=resources, seed=1, **settings
        )
        trial = kind(config={})
        losses = [trial.train()["val_loss"] for _ in range(2)]
        trial.cleanup()
        return losses, list(DEVICES)

    return train


@pytest.mark.parametrize("num_gpus", [1, 2])
def test_a_trial_trains_on_its_gpus_with_the_numbers_of_the_cpu(train, monkeypatch, num_gpus):
    of_cpu, _ = train(0)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with FakeGpus(4096, 4096):
        of_gpus, devices = train(num_gpus)

    assert np.allclose(of_gpus, of_cpu, rtol=1e-6)
    assert devices == [[" ".join(["CPU:0", "CPU:1"][:num_gpus])] * 2]


def test_each_stage_of_a_model_is_on_a_gpu_of_its_own(train):
    of_cpu, _ = train(0)
    with FakeGpus(4096, 4096):
        of_stages, devices = train(2, ModelParallel(2))

    assert np.allclose(of_stages, of_cpu, rtol=1e-6)
    assert devices == [["CPU:2"] * 2, ["CPU:0", "CPU:1"]]  # the first model is on the host
