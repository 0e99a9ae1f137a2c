"""Wall time of unequal folds on two devices against their best packing.

A packing gives every fold as a whole to one device, and takes as long as the busier one; the best
is found by trying all. What a fold takes is the sum of its epochs, measured in the trial itself, so
that what is compared is the queue alone: moving, waiting, running ahead, and all that lies between
two epochs. The wall begins with the call that starts the trial. Earlier trials in the same
processes have traced what there is to trace.
"""

import argparse
import itertools
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")

import keras
import numpy as np
import ray
from measuring.interleaved import ratio_of
from measuring.summary import Target, print_summary, print_table

from tune_tf import Data, Folds, Workload, trainable
from tune_tf.workload import Config

_SEED = 7
_NUM_DEVICES = 2
_TARGETS = {
    "nearly_even/wall_over_best_packing": Target(1.10, "at most"),
    "one_short/wall_over_best_packing": Target(1.10, "at most"),
}
_HELD_OUT = {
    "nearly_even": (0.40, 0.35, 0.23, 0.01, 0.01),  # the three short folds equal the two long ones
    "one_short": (0.60, 0.10, 0.10, 0.10, 0.10),
}


class _Notes(keras.callbacks.Callback):
    """Callback that records the duration of each epoch with its loss, which identifies it.

    Args:
        folder: Where, in a file for each process.
    """

    def __init__(self, folder: str) -> None:
        super().__init__()
        self._folder = folder
        self._began = 0.0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Record the start."""
        self._began = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Write the duration."""
        seconds = time.perf_counter() - self._began
        with Path(self._folder, str(os.getpid())).open("a") as file:
            file.write(f"{epoch + 1} {logs['loss']!r} {seconds!r}\n")


class _Groups(Workload):
    """Workload with one group of rows per fold, which records the duration of each epoch.

    Args:
        shares: Of the rows, by group.
        num_rows: Rows.
        folder: Where the notes are.
    """

    def __init__(self, shares: Sequence[float], num_rows: int, folder: str) -> None:
        self._shares = shares
        self._num_rows = num_rows
        self._folder = folder

    def load_data(self, config: Config) -> Data:
        """Return rows of noise with labels."""
        rng = np.random.default_rng(0)
        sizes = np.round(np.array(self._shares) * self._num_rows).astype(int)
        x = rng.normal(size=(sizes.sum(), 64)).astype("float32")
        y = rng.integers(10, size=len(x)).astype("int32")
        return Data((x, y), groups=np.repeat(np.arange(len(sizes)), sizes))

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

    def callbacks(self, config: Config) -> list[keras.callbacks.Callback]:
        """Return the recorder of durations."""
        return [_Notes(self._folder)]


def _seconds_by_fold(folder: Path, results: Sequence[dict[str, Any]]) -> list[float]:
    """Return the training seconds of each fold, identified by its losses."""
    notes: dict[tuple[int, float], float] = {}
    for file in folder.iterdir():
        for line in file.read_text().splitlines():
            epoch, loss, seconds = line.split()
            notes[int(epoch), float(loss)] = float(seconds)
        file.unlink()
    num_folds = sum(key.startswith("fold_") and key.endswith("/loss") for key in results[0])
    return [
        sum(
            notes[epoch, result[f"fold_{fold}/loss"]]
            for epoch, result in enumerate(results, start=1)
        )
        for fold in range(num_folds)
    ]


def _best_packing(seconds: Sequence[float]) -> float:
    def busier(places: Sequence[int]) -> float:
        loads = [0.0] * _NUM_DEVICES
        for place, each in zip(places, seconds, strict=True):
            loads[place] += each
        return max(loads)

    return min(map(busier, itertools.product(range(_NUM_DEVICES), repeat=len(seconds))))


def _measure(
    name: str, arguments: argparse.Namespace
) -> tuple[list[float], list[float], tuple[str, ...]]:
    """Return the ratio of each trial to its best packing and to half of all, and a table row."""
    folder = Path(tempfile.mkdtemp())
    workload = _Groups(_HELD_OUT[name], arguments.num_rows, str(folder))
    kind = trainable(workload, Folds(5, grouped=True, num_devices=_NUM_DEVICES), seed=_SEED)
    trial = kind(config={"learning_rate": 1e-3})
    ratios, shares, walls, packings = [], [], [], []
    for number in range(arguments.num_warm + arguments.num_trials):
        for file in folder.iterdir():
            file.unlink()
        started = time.perf_counter()
        trial.reset({"learning_rate": 1e-3 * (1 + number / 100)})
        results = [trial.train() for _ in range(arguments.num_epochs)]
        wall = time.perf_counter() - started
        seconds = _seconds_by_fold(folder, results)
        packing = _best_packing(seconds)
        phase = "warming up" if number < arguments.num_warm else "measured"
        print(f"{name}: {phase}, {wall:.2f} s, best packing {packing:.2f} s", flush=True)
        if number >= arguments.num_warm:
            ratios.append(wall / packing)
            shares.append(wall / (sum(seconds) / _NUM_DEVICES))
            walls.append(wall)
            packings.append(packing)
    trial.stop()
    row = (
        name,
        " ".join(f"{each:.1f}" for each in seconds),
        f"{statistics.median(packings):.2f} s",
        f"{statistics.median(walls):.2f} s",
        str(ratio_of(ratios)),
        str(ratio_of(shares)),
    )
    return ratios, shares, row


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smoke run: two short trials")
    parser.add_argument("--num-trials", type=int, default=5, help="measured trials of a case")
    parser.add_argument("--num-warm", type=int, default=3, help="trials before, for traces")
    parser.add_argument("--num-epochs", type=int, default=20, help="epochs of a trial")
    parser.add_argument("--num-rows", type=int, default=20_000, help="rows of the data set")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.num_trials = arguments.num_warm = 1
        arguments.num_epochs = 4
    return arguments


def main() -> None:
    """Run trials of unequal folds and print their walls over the best packings."""
    arguments = _arguments()
    ray.init(
        address="local",
        num_cpus=_NUM_DEVICES,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
    )
    values, rows = {}, []
    for name in _HELD_OUT:
        ratios, shares, row = _measure(name, arguments)
        values[f"{name}/wall_over_best_packing"] = statistics.median(ratios)
        values[f"{name}/wall_over_equal_shares"] = statistics.median(shares)
        rows.append(row)
    ray.shutdown()
    print()
    print_table(
        ("folds", "their seconds", "best packing", "wall", "wall / packing", "wall / equal shares"),
        rows,
    )
    print_summary("folds", values, _TARGETS)


if __name__ == "__main__":
    main()
