"""Five folds on two devices against the same folds in turns, in processes that have traced them.

All wait for the last fold of an epoch, so five equal folds take three turns on two devices: they
can be at most 5/3 as fast.
"""

import argparse
import os
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import ray
from measuring.interleaved import take_turns
from measuring.summary import Target, print_summary, print_table

from tune_tf import Data, Folds, Workload, trainable
from tune_tf.workload import Config

_SEED = 7
_TARGETS = {"in_turns_over_two_devices": Target(1.3)}


class _Noise(Workload):
    """Rows of noise with labels for a perceptron."""

    def __init__(self, num_rows: int) -> None:
        self._num_rows = num_rows

    def load_data(self, config: Config) -> Data:
        """Return the rows."""
        rng = np.random.default_rng(0)
        x = rng.normal(size=(self._num_rows, 64)).astype("float32")
        return Data((x, rng.integers(10, size=len(x)).astype("int32")))

    def build_model(self, config: Config) -> keras.Model:
        """Return a compiled perceptron."""
        model = keras.Sequential(
            [keras.Input((64,)), keras.layers.Dense(256, "relu"), keras.layers.Dense(10)]
        )
        model.compile(
            keras.optimizers.Adam(config["learning_rate"]),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )
        return model


class _Trial:
    """Trial that starts anew for each turn."""

    def __init__(self, workload: Workload, num_devices: int, num_epochs: int) -> None:
        self._num_epochs = num_epochs
        parallelism = Folds(5, num_devices=num_devices)
        self.trial = trainable(workload, parallelism, seed=_SEED)(config={"learning_rate": 1e-3})
        self.trial.train()
        self.losses: list[Any] = []

    def prepare(self) -> None:
        """Do nothing."""

    def run(self) -> None:
        """Train."""
        self.trial.reset({"learning_rate": 2e-3})
        self.losses = [self.trial.train()["val_loss"] for _ in range(self._num_epochs)]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smoke run: two rounds")
    parser.add_argument("--num-rounds", type=int, default=5, help="turns of both")
    parser.add_argument("--num-epochs", type=int, default=10, help="epochs of a trial")
    parser.add_argument("--num-rows", type=int, default=20_000, help="rows of the data set")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.num_rounds, arguments.num_epochs, arguments.num_rows = 2, 2, 2_000
    return arguments


def main() -> None:
    """Train folds on one and two devices in turns and print the ratio of their times."""
    arguments = _arguments()
    ray.init(
        address="local",
        num_cpus=3,  # both are there all the time
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
    )
    workload = _Noise(arguments.num_rows)
    trials = {
        "in turns": _Trial(workload, 1, arguments.num_epochs),
        "two devices": _Trial(workload, 2, arguments.num_epochs),
    }
    timings = take_turns(trials, num_rounds=arguments.num_rounds)
    losses = [each.losses for each in trials.values()]
    for each in trials.values():
        each.trial.stop()
    ray.shutdown()
    if losses[0] != losses[1]:
        raise SystemExit(f"the losses differ: {losses}")
    ratio = timings.ratio("in turns", "two devices")
    print_table(("folds", "s"), [(name, f"{timings.median_s(name):.2f}") for name in trials])
    print(f"in turns over two devices: {ratio}")
    print_summary("folds", {"in_turns_over_two_devices": ratio.median}, _TARGETS)


if __name__ == "__main__":
    main()
