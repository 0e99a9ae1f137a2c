"""Duration of an epoch on a ``tf.data.Dataset``: tune_tf's graph call against ``model.fit``.

Both train the same model from the same weights on equal data sets, by turns in one process, one
cheap to read and one that augments each row on the CPU, and must arrive at the same losses. ``fit``
runs once for all epochs and is paused between them, so that it is timed at its best.
"""

import argparse
import os
import queue
import threading
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf
from measuring.interleaved import take_turns
from measuring.summary import Target, print_summary, print_table

from tune_tf import Data, TrialResources, Workload, trainable
from tune_tf.workload import Config
from tune_tf.workloads.digits import DigitsCNN

_SEED = 7
_TOLERANCE = 1e-5
_TARGETS = {"cheap/fit": Target(1.0), "augmented/fit": Target(1.0)}


def _augmented(image: Any, label: Any) -> Any:
    seed = tf.stack([label, tf.cast(tf.reduce_sum(image), label.dtype)])
    large = tf.image.resize(image, (40, 40))
    large = tf.image.stateless_random_contrast(large, 0.8, 1.2, seed)
    large = tf.image.stateless_random_crop(large, (32, 32, 1), seed)
    return tf.image.resize(large, (8, 8)), label


def _data(kind: str) -> Data:
    arrays = DigitsCNN().load_data({})
    train, validation = (
        tf.data.Dataset.from_tensor_slices((part[0], part[1].astype("int32")))
        for part in (arrays.train, arrays.validation)
    )
    if kind == "augmented":
        train = train.map(_augmented, tf.data.AUTOTUNE)
    train = train.batch(32).prefetch(tf.data.AUTOTUNE)
    return Data(train, validation.batch(64))


def _model() -> keras.Model:
    layers = [
        keras.Input((8, 8, 1)),
        keras.layers.Flatten(),
        keras.layers.Dense(64, "relu"),
        keras.layers.Dense(10),
    ]
    model = keras.Sequential(layers)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.05), loss, metrics=["accuracy"])
    return model


class _Digits(Workload):
    """Workload on a data set of one kind."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def load_data(self, config: Config) -> Data:
        """Return the data sets."""
        return _data(self._kind)

    def build_model(self, config: Config) -> keras.Model:
        """Return the model."""
        return _model()


class _Ours:
    """Epochs of a trial."""

    def __init__(self, kind: str) -> None:
        resources = TrialResources(cpus=os.cpu_count() or 1)  # `fit` takes all
        self._trial = trainable(_Digits(kind), seed=_SEED, resources=resources)(config={})
        self.weights = self._trial._processes._loop.trial.program.model.get_weights()  # noqa: SLF001
        self.losses: list[float] = []

    def prepare(self) -> None:
        """Do nothing."""

    def run(self) -> None:
        """Train and validate for an epoch."""
        self.losses.append(self._trial.train()["val_loss"])


class _Fit(keras.callbacks.Callback):
    """Epochs of one call of ``fit``, which waits between them."""

    def __init__(self, kind: str, weights: "list[np.ndarray[Any, Any]]") -> None:
        super().__init__()
        self._wanted: queue.Queue[None] = queue.Queue()
        self._done: queue.Queue[float] = queue.Queue()
        self.losses: list[float] = []
        data, model = _data(kind), _model()
        model.set_weights(weights)
        arguments = {"validation_data": data.validation, "epochs": 10**9, "verbose": 0}
        fit: Callable[[], Any] = lambda: model.fit(data.train, callbacks=[self], **arguments)  # noqa: E731
        threading.Thread(target=fit, daemon=True).start()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Wait until the epoch is wanted."""
        self._wanted.get()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Hand over the loss."""
        self._done.put(logs["val_loss"])

    def prepare(self) -> None:
        """Do nothing."""

    def run(self) -> None:
        """Train and validate for an epoch."""
        self._wanted.put(None)
        self.losses.append(self._done.get())


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rounds")
    num_rounds = 5 if parser.parse_args().quick else 40
    rows, values = [], {}
    for kind in ("cheap", "augmented"):
        ours = _Ours(kind)
        contestants = {"ours": ours, "fit": _Fit(kind, ours.weights)}
        for contestant in contestants.values():
            contestant.run()  # traces
        timings = take_turns(contestants, num_rounds=num_rounds)
        np.testing.assert_allclose(ours.losses, contestants["fit"].losses, rtol=_TOLERANCE)
        ratio = timings.ratio("fit", "ours")
        rows.append((kind, *(f"{timings.median_s(each) * 1e3:.1f} ms" for each in contestants)))
        rows[-1] += (str(ratio),)
        values[f"{kind}/fit"] = ratio.median
    print_table(("data set", "ours", "fit", "fit/ours"), rows)
    print_summary("datasets", values, _TARGETS)


if __name__ == "__main__":
    main()
