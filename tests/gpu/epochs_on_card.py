"""Duration of an epoch on a GPU: tune_tf's graph call, with and without XLA, against ``fit``.

All train the same model from the same weights on the same rows in the same order, by turns.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts" / "bench"))

import keras
import numpy as np
import tensorflow as tf
from baselines.digits_epochs import OurEpochs, built
from baselines.fit_epochs import FitEpochs
from measuring.interleaved import take_turns

from tune_tf import Data, Workload
from tune_tf.training.devices import Devices
from tune_tf.training.replicas.replicas import Replicas
from tune_tf.training.seeds import epoch_order
from tune_tf.workload import Config

layers = keras.layers
NUM_TRAIN, NUM_VALIDATION = 4096, 1024


class Images(Workload):
    """Random images; ``kind`` is the model's, ``jit`` is ``compile``'s ``jit_compile``."""

    def __init__(self, kind: str, size: int, *, jit: Any = False) -> None:
        self._kind, self._size, self._jit = kind, size, jit

    def load_data(self, config: Config) -> Data:
        """Return images and labels of ten classes."""
        rng = np.random.default_rng(0)
        x = rng.random((NUM_TRAIN + NUM_VALIDATION, self._size, self._size, 3), "float32")
        y = rng.integers(0, 10, len(x)).astype("int32")
        return Data((x[:NUM_TRAIN], y[:NUM_TRAIN]), (x[NUM_TRAIN:], y[NUM_TRAIN:]))

    def build_model(self, config: Config) -> keras.Model:
        """Return the compiled model."""
        x = inputs = keras.Input((self._size, self._size, 3))
        if self._kind == "mlp":
            x = layers.Dense(256, "relu")(layers.Flatten()(x))
        elif self._kind == "cnn":
            for filters in (32, 64, 128):
                x = layers.Conv2D(filters, 3, activation="relu", padding="same")(x)
                x = layers.MaxPooling2D()(x)
            x = layers.GlobalAveragePooling2D()(x)
        else:
            shape = (self._size, self._size, 3)
            net = keras.applications.ResNet50(include_top=False, weights=None, input_shape=shape)
            x = layers.GlobalAveragePooling2D()(net(x))
        model = keras.Model(inputs, layers.Dense(10)(x))
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(
            keras.optimizers.Adam(1e-3), loss, metrics=["accuracy"], jit_compile=self._jit
        )
        return model


def measure(kind: str, size: int, batch_size: int, rounds: int) -> dict[str, Any]:
    """Return milliseconds of an epoch by contestant, of the first one too, and differences."""
    config = {"batch_size": batch_size}
    replicas = Replicas(Devices(("GPU:0",)))
    first, contestants = {}, {}
    for name, jit in (("plain", False), ("xla", True)):
        contestants[name] = OurEpochs(Images(kind, size, jit=jit), config, replicas)
    for name, jit in (("fit_auto", "auto"), ("fit_plain", False)):
        workload = Images(kind, size, jit=jit)
        data = workload.load_data(config)
        model = built(workload, config, tf.distribute.get_strategy())
        contestants[name] = FitEpochs(
            model,
            data.train,
            data.validation,
            order=lambda epoch: epoch_order(7, epoch, NUM_TRAIN),
            batch_size=batch_size,
        )
    for name, each in contestants.items():
        began = time.perf_counter()
        each.prepare()
        each.run()
        first[name] = round(time.perf_counter() - began, 2)
    timings = take_turns(contestants, num_rounds=rounds)
    losses = {name: np.array(each.losses[:2]) for name, each in contestants.items()}
    return {
        "model": f"{kind} {size}x{size}, batch {batch_size}",
        "epoch_ms": {name: round(1e3 * timings.median_s(name), 1) for name in contestants},
        "first_epoch_s": first,
        "difference": {
            name: float(np.max(np.abs(each / losses["plain"] - 1))) for name, each in losses.items()
        },
    }


def main() -> None:
    """Print a line for each model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    tf.config.experimental.enable_tensor_float_32_execution(False)
    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)
    for case in (("mlp", 8, 32), ("cnn", 8, 32), ("cnn", 32, 128), ("resnet50", 32, 128)):
        print(json.dumps(measure(*case, rounds)), flush=True)  # noqa: T201  what it is for


if __name__ == "__main__":
    main()
