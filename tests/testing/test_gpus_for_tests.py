"""Fake GPUs: what TensorFlow and the driver tell of them, and where and what they compute."""

import gc
import os
import subprocess

import keras
import numpy as np
import pytest
import tensorflow as tf

from tune_tf import Data, Mirrored, ModelParallel, TrialResources, Workload, trainable
from tune_tf.outcome import Outcome
from tune_tf.testing import FakeGpus, gpu_error
from tune_tf.testing.fake_gpus import GPU_ERRORS

pytestmark = pytest.mark.tf


@pytest.fixture
def gpus(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with FakeGpus(64, 32) as gpus:
        yield gpus


def cpu_of(name):
    """Return the end of the name of the logical CPU that computes for a device."""
    with tf.device(name):
        return tf.Variable(1.0).device[-5:]


def test_devices_are_listed_as_those_of_the_driver(gpus):
    query = ["nvidia-smi", "--query-gpu=uuid,memory.total", "--format=csv,noheader,nounits"]
    told = subprocess.run(query, capture_output=True, text=True, check=True).stdout

    assert told == "".join(
        f"{name}, {mib}\n" for name, mib in zip(gpus.names, (64, 32), strict=True)
    )
    assert [each.name[-5:] for each in tf.config.list_physical_devices("GPU")] == ["GPU:0", "GPU:1"]
    assert [each.name for each in tf.config.list_logical_devices("GPU")] == [
        "/device:GPU:0",
        "/device:GPU:1",
    ]
    assert [each.name for each in tf.config.list_logical_devices("CPU")] == ["/device:CPU:0"]
    assert keras.distribution.list_devices("gpu") == ["gpu:0", "gpu:1"]


def test_each_device_computes_on_a_cpu_of_its_own_and_gpus_come_first(gpus):
    names = ("GPU:0", "/GPU:1", "/device:gpu:1", "CPU:0", None)

    assert [cpu_of(name) for name in names] == ["CPU:0", "CPU:1", "CPU:1", "CPU:2", "CPU:0"]
    with tf.device("GPU:1"):
        variable = tf.Variable(1.0)
    assert cpu_of(variable.device) == "CPU:1"  # the name of a tensor's device is no GPU's


def test_the_machine_is_as_before_when_they_are_gone(gpus):
    gpus.__exit__()

    assert tf.config.list_physical_devices("GPU") == []
    assert cpu_of("CPU:0") == "CPU:0"
    with pytest.raises(FileNotFoundError):
        subprocess.run(["nvidia-smi"])


@pytest.mark.parametrize(
    ("visible", "mib"),
    [("1,0", [32, 64]), ("1", [32]), ("", []), ("9,0", []), ("GPU-00000001", [32])],
)
def test_the_visible_devices_of_cuda_are_those_of_tensorflow(gpus, monkeypatch, visible, mib):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)

    assert len(tf.config.list_physical_devices("GPU")) == len(mib)
    for number, size in enumerate(mib):
        with tf.device(f"GPU:{number}"), pytest.raises(tf.errors.ResourceExhaustedError):
            tf.Variable(tf.zeros([(size + 1) * 2**20], tf.int8))


def test_hidden_gpus_compute_nothing(gpus):
    tf.config.set_visible_devices([], "GPU")

    assert tf.config.list_logical_devices("GPU") == []
    assert cpu_of("CPU:0") == "CPU:0"


def test_devices_are_fixed_at_their_first_use(gpus):
    first, second = tf.config.list_physical_devices("GPU")
    tf.config.experimental.set_memory_growth(first, True)
    cpu_of("GPU:0")

    tf.config.experimental.set_memory_growth(first, True)  # what is set already may be set again
    for change in (
        lambda: tf.config.experimental.set_memory_growth(second, True),
        lambda: tf.config.set_visible_devices(second, "GPU"),
        lambda: tf.config.set_logical_device_configuration(second, [limit(1)]),
    ):
        with pytest.raises(RuntimeError, match="cannot be modified after being initialized"):
            change()


def limit(mib):
    return tf.config.LogicalDeviceConfiguration(memory_limit=mib)


def test_weights_slots_and_rows_count_towards_a_memory_limit_while_they_live(gpus):
    gpu = tf.config.list_physical_devices("GPU")[0]
    tf.config.set_logical_device_configuration(gpu, [limit(8)])
    dense = keras.layers.Dense(1024)
    dense.build((1, 1023))  # 4 MiB with the bias
    rows = tf.identity(tf.zeros([3, 2**18]))

    with pytest.raises(
        tf.errors.ResourceExhaustedError, match=r"OOM .*\[1048577\].*GPU:0"
    ) as error:
        tf.Variable(tf.zeros([2**20 + 1], tf.int8))
    with tf.device("GPU:1"):
        tf.Variable(tf.zeros([2**20 + 1], tf.int8))
    assert Outcome.of_error(f"{type(error.value).__name__}: {error.value}") is Outcome.OOM
    del rows
    gc.collect()
    tf.Variable(tf.zeros([2**20 + 1], tf.int8))


@pytest.mark.parametrize("kind", GPU_ERRORS)
def test_errors_of_gpus_are_those_that_a_retry_heals(kind):
    error = gpu_error(kind)

    expected = Outcome.ERROR if kind == "driver" else Outcome.OOM
    assert Outcome.of_error(f"{type(error).__name__}: {error}") is expected


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


def test_workers_are_told_of_them_by_the_environment(gpus):
    (variable,) = gpus.runtime_env["env_vars"].items()

    assert variable in os.environ.items()
    assert gpus.runtime_env["worker_process_setup_hook"].endswith("fake_gpus.install")
