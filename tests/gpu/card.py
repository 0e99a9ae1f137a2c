"""What a GPU is used for, as its driver tells, and trials that are run on it."""

import json
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import ray

from tune_tf import Data, TrialResources, Workload, trainable


def query(*arguments):
    """Return the lines of a query of nvidia-smi, split at commas."""
    command = ["nvidia-smi", *arguments, "--format=csv,noheader,nounits"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return [[part.strip() for part in line.split(",")] for line in lines]


def memory_mib():
    """Return the memory of the first GPU in MiB."""
    return int(query("--query-gpu=memory.total")[0][0])


def used_mib():
    """Return the used memory of the first GPU in MiB."""
    return int(query("--query-gpu=memory.used")[0][0])


def processes():
    """Return MiB of the GPU's memory by process."""
    return {int(pid): mib for pid, mib in query("--query-compute-apps=pid,used_memory")}


class Watch:
    """Watches who uses the GPU, and how much of it, while a block runs."""

    def __enter__(self):
        self.command_of, self.most_mib, self.most_at_once = {}, 0, 0
        self._before = set(processes())
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *failure):
        self._ended.set()
        self._thread.join()

    def _watch(self):
        while not self._ended.is_set():
            new = set(processes()) - self._before
            for pid in new - self.command_of.keys():
                self.command_of[pid] = command_of(pid)
            self.most_at_once = max(self.most_at_once, len(new))
            self.most_mib = max(self.most_mib, used_mib())
            time.sleep(0.2)


def command_of(pid):
    """Return the command line of a process."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return "it has ended"


@ray.remote(num_cpus=0)
class Taken:
    """Takes a share of the GPU, which it leaves alone."""

    def is_there(self):
        """Return once it is."""


def weights(folder):
    """Return the arrays of all checkpoints in a folder, by trial, epoch and name."""
    arrays = {}
    for path in folder.glob("*/trial_*/checkpoint_*/trial.npz"):
        with np.load(path) as saved:
            head = json.loads(str(saved["head"]))
            arrays |= {
                (path.parts[-3], head["epoch"], name): saved[name]
                for name in saved.files
                if name != "head"
            }
    return arrays


class Wide(Workload):
    """A model whose activations take ``width`` floats a row, and so much of a GPU's memory."""

    def load_data(self, config):
        x = np.random.default_rng(0).random((config["rows"], 16), "float32")
        return Data((x, x[:, :1]), (x[:64], x[:64, :1]))

    def build_model(self, config):
        import keras

        hidden = [keras.layers.Dense(config["width"], "relu") for _ in range(4)]
        model = keras.Sequential([keras.Input((16,)), *hidden, keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        return model

    def global_batch_size(self, config):
        return config["rows"]


class Heavy(Workload):
    """A model whose weight takes ``mib`` of a GPU's memory."""

    def load_data(self, config):
        x = np.ones((8, 1), "float32")
        return Data((x, x), (x, x))

    def build_model(self, config):
        import keras

        table = keras.layers.Embedding(config["mib"] * 2**20 // 4, 1, trainable=False)
        model = keras.Sequential([keras.Input((1,)), table, keras.layers.Flatten()])
        model.add(keras.layers.Dense(1))
        model.compile("sgd", "mse")
        return model

    def global_batch_size(self, config):
        return 8


class Head(Workload):
    """A trained head over a frozen MobileNetV2."""

    def load_data(self, config):
        rng = np.random.default_rng(0)
        x = rng.random((320, 96, 96, 3), "float32")
        y = rng.integers(0, 10, 320).astype("int32")
        return Data((x[:256], y[:256]), (x[256:], y[256:]))

    def build_model(self, config):
        import keras

        keras.utils.set_random_seed(3)
        base = keras.applications.MobileNetV2((96, 96, 3), include_top=False, weights=None)
        base.trainable = False
        inputs = keras.Input((96, 96, 3))
        features = keras.layers.GlobalAveragePooling2D()(base(inputs, training=False))
        hidden = keras.layers.Dense(64, "relu")(keras.layers.Dropout(0.2)(features))
        model = keras.Model(inputs, keras.layers.Dense(10, "softmax")(hidden))
        model.compile(keras.optimizers.Adam(1e-3), "sparse_categorical_crossentropy")
        return model

    def global_batch_size(self, config):
        return config["batch_size"]


def history(workload, config, num_epochs, gpus, **settings):
    """Return the metrics of each epoch of a trial in a process of its own."""

    def train():
        import tensorflow as tf

        tf.config.experimental.enable_tensor_float_32_execution(False)
        kind = trainable(workload, resources=TrialResources(2, gpus), seed=1, **settings)
        trial = kind(config=config)
        epochs = []
        for _ in range(num_epochs):
            began = time.perf_counter()
            result = trial.train()
            epochs.append(
                {key: value for key, value in result.items() if isinstance(value, float)}
                | {"seconds": time.perf_counter() - began}
            )
        return epochs

    return ray.get(ray.remote(num_cpus=2, num_gpus=gpus, max_calls=1)(train).remote())
