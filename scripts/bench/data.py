"""Data shared by trials on one node: prepared once, memory-mapped, streamed if too large.

Four questions, the first two against what a user would otherwise do: the wall of eight trials that
decode pictures, the private memory of four trials on one large array, the time from the start of a
trial in a warm process to its first batches, and whether a trial grows on a file of three times the
memory that it may take.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")

import keras
import numpy as np
import psutil
import ray
from baselines.drawn_pictures import draw_pictures
from baselines.private_pictures import PrivatePictures
from measuring.interleaved import take_turns
from measuring.rate_sweep import NUM_CPUS, NUM_TRIALS, RateSweep
from measuring.summary import Target, print_summary, print_table
from PIL import Image
from ray import tune

from tune_tf import Data, Workload, trainable
from tune_tf.data import Pipeline, prepared
from tune_tf.workload import Config

_SEED = 7
_NUM_SHARING = 4
_SIDE = 32
_TARGETS = {
    "pictures/private_over_ours": Target(4.0),
    "array/private_copies": Target(1.3, "at most"),
    "first_batch_s": Target(0.2, "at most"),
    "stream/growth_over_limit": Target(0.1, "at most"),
}


def decoded(path: str) -> "np.ndarray[Any, Any]":
    """Return a picture, uint8 of shape ``[side, side, 3]``."""
    with Image.open(path) as picture:
        return np.asarray(picture.resize((_SIDE, _SIDE), Image.Resampling.LANCZOS))


def classifier(config: Config) -> keras.Model:
    """Return a compiled perceptron on pictures."""
    keras.utils.set_random_seed(_SEED)
    model = keras.Sequential(
        [
            keras.Input((_SIDE, _SIDE, 3)),
            keras.layers.Rescaling(1 / 255),
            keras.layers.Flatten(),
            keras.layers.Dense(16, "relu"),
            keras.layers.Dense(10),
        ]
    )
    model.compile(
        keras.optimizers.SGD(config["learning_rate"]),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    return model


class Pictures(Workload):
    """Workload whose pictures are decoded once for all trials.

    Args:
        paths: The files.
        labels: By file.
    """

    def __init__(self, paths: list[str], labels: "np.ndarray[Any, Any]") -> None:
        self._paths, self._labels = paths, labels
        self._version = uuid.uuid4().hex  # every round prepares anew

    def load_data(self, config: Config) -> Data:
        """Return all pictures."""
        return Data((prepared(self._paths, decoded, version=self._version).rows, self._labels))

    def build_model(self, config: Config) -> keras.Model:
        """Return the model."""
        return classifier(config)

    def shuffle(self, config: Config) -> bool:
        """Return False, like the baseline."""
        return False

    def global_batch_size(self, config: Config) -> int:
        """Return the batch size of the baseline."""
        return 64


def _pictures(arguments: argparse.Namespace) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        paths = draw_pictures(Path(folder), arguments.num_pictures)
        labels = np.arange(len(paths), dtype=np.int32) % 10
        given = {"paths": paths, "decode": decoded, "labels": labels, "build": classifier}
        private = tune.with_parameters(PrivatePictures, **given, seed=_SEED)
        size = {"base_rate": 0.001, "num_epochs": 1}
        ours = RateSweep(lambda: trainable(Pictures(paths, labels), seed=_SEED), **size)
        sweeps = {
            "ours": ours,
            "private": RateSweep(lambda: tune.with_resources(private, {"cpu": 1}), **size),
        }
        timings = take_turns(sweeps, num_rounds=arguments.num_rounds)
    for rate, loss in sweeps["private"].losses.items():
        np.testing.assert_allclose(ours.losses[rate], loss, rtol=1e-4)
    ratio = timings.ratio("private", "ours")
    print_table(
        ("trials that decode pictures", "median"),
        [(name, f"{timings.median_s(name):.1f} s") for name in sweeps] + [("ratio", str(ratio))],
    )
    return {
        "pictures/private_over_ours": ratio.median,
    }


class Large(Workload):
    """Workload with a large array.

    Args:
        num_bytes: Its size.
    """

    def __init__(self, num_bytes: int) -> None:
        self._num_rows = num_bytes // (784 * 4)

    def load_data(self, config: Config) -> Data:
        """Return noise."""
        x = np.random.default_rng(_SEED).standard_normal((self._num_rows, 784), np.float32)
        return Data((x, np.arange(self._num_rows, dtype=np.int32) % 10))

    def build_model(self, config: Config) -> keras.Model:
        """Return a compiled perceptron."""
        model = keras.Sequential(
            [keras.Input((784,)), keras.layers.Dense(8), keras.layers.Dense(10)]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.01), loss)
        return model

    def global_batch_size(self, config: Config) -> int:
        """Return the rows of a batch."""
        return 512


class Reused:
    """Process that trains consecutive trials, as Tune does.

    Args:
        kind: Their trainable.
    """

    def __init__(self, kind: Any) -> None:
        self._trial = kind(config={"number": 0})

    def train(self) -> float:
        """Train an epoch; return the private memory of this process in bytes."""
        self._trial.train()
        return float(psutil.Process().memory_full_info().uss)

    def restart(self, number: int) -> float:
        """Start another trial; return the seconds to the end of its first epoch."""
        began = time.perf_counter()
        self._trial.reset({"number": number})
        self._trial.train()
        return time.perf_counter() - began


class Sliced:
    """Process that trains on ``tf.data.Dataset.from_tensor_slices``.

    Args:
        workload: What it trains.
        x: The array, in Ray's object store.
        y: Its labels.
    """

    def __init__(self, workload: Workload, x: Any, y: Any) -> None:
        import tensorflow as tf

        self._model = workload.build_model({})
        self._data = tf.data.Dataset.from_tensor_slices((x, y)).batch(512).prefetch(2)

    def train(self) -> float:
        """Train an epoch; return the private memory of this process in bytes."""
        self._model.fit(self._data, verbose=0)
        return float(psutil.Process().memory_full_info().uss)


def _private_bytes(processes: list[Any]) -> float:
    """Return the private memory of processes that train concurrently, after two epochs."""
    ray.get([process.train.remote() for process in processes])
    used = sum(ray.get([process.train.remote() for process in processes]))
    for process in processes:
        ray.kill(process)
    return float(used)


def _ours(workload: Workload) -> list[Any]:
    kind = trainable(workload, seed=_SEED)
    return [ray.remote(num_cpus=0)(Reused).remote(kind) for _ in range(_NUM_SHARING)]


def _slices(workload: Workload) -> list[Any]:
    x, y = (ray.put(part) for part in workload.load_data({}).train)
    return [ray.remote(num_cpus=0)(Sliced).remote(workload, x, y) for _ in range(_NUM_SHARING)]


def _array(arguments: argparse.Namespace) -> dict[str, float]:
    num_bytes = arguments.num_megabytes * 1_000_000
    small, large = Large(8_000_000), Large(num_bytes)
    copies = {
        name: (_private_bytes(make(large)) - _private_bytes(make(small))) / num_bytes
        for name, make in {"ours": _ours, "slices": _slices}.items()
    }
    print_table(
        (f"{_NUM_SHARING} trials on {arguments.num_megabytes} MB", "private copies in all"),
        [(name, f"{value:.2f}") for name, value in copies.items()],
    )
    return {"array/private_copies": copies["ours"], "array/private_copies_slices": copies["slices"]}


def _first_batch(arguments: argparse.Namespace) -> dict[str, float]:
    kind = trainable(Large(512 * 784 * 4 * 4), seed=_SEED)  # four batches
    process = ray.remote(num_cpus=1)(Reused).remote(kind)
    ray.get(process.train.remote())
    seconds = [ray.get(process.restart.remote(number)) for number in range(1, NUM_TRIALS)]
    ray.kill(process)
    median = statistics.median(seconds)
    print(
        f"to the end of four batches in a warm process: {median:.3f} s, worst {max(seconds):.3f} s"
    )
    return {"first_batch_s": median, "first_batch_worst_s": max(seconds)}


def _streaming(path: str, limit_bytes: int) -> None:
    """Stream a file with little memory in this process, and print its memory growth."""

    class Streamed(Large):
        def load_data(self, config: Config) -> Data:
            x = np.load(path, mmap_mode="r")
            return Data(Pipeline((x, np.arange(len(x), dtype=np.int32) % 10)))

    process = psutil.Process()
    trial = trainable(Streamed(0), seed=_SEED)(config={})
    trial.train()
    data_segment = process.memory_info().data
    resource.setrlimit(resource.RLIMIT_DATA, (data_segment + limit_bytes, resource.RLIM_INFINITY))
    used = []
    for _ in range(4):
        result = trial.train()
        used.append(process.memory_full_info().uss)
    growth = max(used) - used[0]
    print(json.dumps({"growth": growth, "loss": result["loss"]}))


def _stream(arguments: argparse.Namespace) -> dict[str, float]:
    limit = arguments.num_megabytes * 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "x.npy"))
        num_rows = 3 * limit // (784 * 4)
        x = np.lib.format.open_memmap(path, "w+", np.float32, (num_rows, 784))
        rng = np.random.default_rng(_SEED)
        for first in range(0, num_rows, 10_000):
            x[first : first + 10_000] = rng.standard_normal(x[first : first + 10_000].shape)
        x.flush()
        del x
        ran = subprocess.run(
            [sys.executable, __file__, "--stream", path, str(limit)],
            capture_output=True,
            text=True,
            check=True,
        )
    measured = json.loads(ran.stdout.splitlines()[-1])
    share = measured["growth"] / limit
    print(f"streaming three times the limit: grew by {share:.1%} of it")
    return {"stream/growth_over_limit": share}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smoke run: few and small")
    parser.add_argument("--num-rounds", type=int, default=3, help="sweeps of each contestant")
    parser.add_argument("--num-pictures", type=int, default=10_000, help="JPEGs of 640 x 480")
    parser.add_argument("--num-megabytes", type=int, default=500, help="size of the large array")
    parser.add_argument("--stream", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.num_rounds, arguments.num_pictures, arguments.num_megabytes = 1, 300, 50
    return arguments


def main() -> None:
    """Run all parts and print the summary."""
    arguments = _arguments()
    if arguments.stream:
        _streaming(arguments.stream[0], int(arguments.stream[1]))
        return
    ray.init(
        address="local",
        num_cpus=NUM_CPUS,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
    )
    values: dict[str, float] = {}
    for measure in (_pictures, _array, _first_batch):
        values |= measure(arguments)
    ray.shutdown()
    values |= _stream(arguments)
    print_summary("data", values, _TARGETS)


if __name__ == "__main__":
    main()
