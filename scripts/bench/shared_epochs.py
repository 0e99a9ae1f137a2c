"""Expensive rows computed once per node against once per trial.

Eight trials decode the same JPEGs in each of their epochs, as where decoded pictures have no room
and random changes come before resizing. Both sides read them by a pipeline of tf.data; one shares
it over the trials.
"""

import argparse
import os
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")

import keras
import numpy as np
import ray
from baselines.drawn_pictures import draw_pictures
from measuring.interleaved import take_turns
from measuring.rate_sweep import NUM_CPUS, NUM_TRIALS, RateSweep
from measuring.summary import Target, print_summary, print_table

from tune_tf import Data, Workload, trainable
from tune_tf.data import Pipeline
from tune_tf.workload import Config

_SEED = 7
_NUM_EPOCHS = 2
_SIDE = 32
_TARGETS = {"private_over_shared": Target(2.5)}


class Decoded(Workload):
    """Workload whose pictures are decoded in every epoch.

    Args:
        paths: The files.
        shared: Whether trials share what they decode.
    """

    def __init__(self, paths: list[str], shared: bool) -> None:
        self._paths, self._shared = np.array(paths), shared

    def load_data(self, config: Config) -> Data:
        """Return the paths of the pictures."""
        import tensorflow as tf

        def decoded(path: Any, label: Any) -> Any:
            picture = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
            return tf.image.resize(picture, (_SIDE, _SIDE), antialias=True) / 255, label

        labels = np.arange(len(self._paths), dtype=np.int32) % 10
        return Data(Pipeline((self._paths, labels), decoded, shared=self._shared))

    def build_model(self, config: Config) -> keras.Model:
        """Return a compiled perceptron on pictures."""
        model = keras.Sequential(
            [
                keras.Input((_SIDE, _SIDE, 3)),
                keras.layers.Flatten(),
                keras.layers.Dense(16, "relu", kernel_initializer=keras.initializers.Ones()),
                keras.layers.Dense(10, kernel_initializer=keras.initializers.Zeros()),
            ]
        )
        model.compile(
            keras.optimizers.SGD(config["learning_rate"]),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )
        return model

    def shuffle(self, config: Config) -> bool:
        """Return False, so that both see the rows in the same order."""
        return False

    def global_batch_size(self, config: Config) -> int:
        """Return the rows of a batch."""
        return 64


def main() -> None:
    """Time both in turns and print the summary."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smoke run: few and small")
    parser.add_argument("--num-rounds", type=int, default=3, help="sweeps of each contestant")
    parser.add_argument("--num-pictures", type=int, default=10_000, help="JPEGs of 640 x 480")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.num_rounds, arguments.num_pictures = 1, 300
    ray.init(
        address="local",
        num_cpus=NUM_CPUS,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
    )
    with tempfile.TemporaryDirectory() as folder:
        paths = draw_pictures(Path(folder), arguments.num_pictures)
        sweeps = {
            name: RateSweep(
                partial(trainable, Decoded(paths, name == "shared"), seed=_SEED),
                base_rate=1e-5,
                num_epochs=_NUM_EPOCHS,
            )
            for name in ("shared", "private")
        }
        timings = take_turns(sweeps, num_rounds=arguments.num_rounds)
    ray.shutdown()
    for rate, loss in sweeps["private"].losses.items():
        np.testing.assert_allclose(sweeps["shared"].losses[rate], loss, rtol=1e-5)
    ratio = timings.ratio("private", "shared")
    print_table(
        (f"{NUM_TRIALS} trials of {_NUM_EPOCHS} epochs", "median"),
        [(name, f"{timings.median_s(name):.1f} s") for name in sweeps] + [("ratio", str(ratio))],
    )
    print_summary("shared_epochs", {"private_over_shared": ratio.median}, _TARGETS)


if __name__ == "__main__":
    main()
