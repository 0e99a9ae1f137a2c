"""Digits workloads for epoch benchmarks, and tune_tf's loop over them."""

import argparse
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tune_tf import Data, Workload
from tune_tf.data import rows_of
from tune_tf.training.input.device_rows import place_rows
from tune_tf.training.loop import GraphLoop
from tune_tf.training.replicas.replicas import Replicas
from tune_tf.training.seeds import epoch_order, seed_python_and_numpy
from tune_tf.workload import Config

SEED = 7
NUM_TRAIN, NUM_VALIDATION = 1408, 384  # whole batches of 32, also for two replicas under fit
TOLERANCE = 1e-3 if tf.config.list_physical_devices("GPU") else 1e-5


class Resplit(Workload):
    """Digits workload with row counts that the batch size divides, as ``fit`` needs."""

    def __init__(self, inner: Workload, *, jit_compile: bool, steps_per_execution: int = 1) -> None:
        self._inner = inner
        self._jit_compile = jit_compile
        self._steps_per_execution = steps_per_execution

    def load_data(self, config: Config) -> Data:
        """Return all rows, split again."""
        data = self._inner.load_data(config)
        x, y = (
            np.concatenate(parts)
            for parts in zip(data.train, data.validation, data.test, strict=True)
        )
        end = NUM_TRAIN + NUM_VALIDATION
        return Data((x[:NUM_TRAIN], y[:NUM_TRAIN]), (x[NUM_TRAIN:end], y[NUM_TRAIN:end]))

    def build_model(self, config: Config) -> keras.Model:
        """Return the compiled model."""
        model = self._inner.build_model(config)
        if self._jit_compile or self._steps_per_execution > 1:
            model.compile(
                optimizer=model.optimizer,
                loss=model.loss,
                metrics=["accuracy"],
                jit_compile=self._jit_compile,
                steps_per_execution=self._steps_per_execution,
            )
        return model


class OurEpochs:
    """tune_tf's loop, as a trial drives it."""

    def __init__(self, workload: Workload, config: Config, replicas: Replicas) -> None:
        self.losses: list[tuple[float, float]] = []
        self._loop = GraphLoop(replicas)
        rows = place_rows(rows_of(workload.load_data(config)), replicas)
        self._loop.start(workload, config, rows, SEED)

    def prepare(self) -> None:
        """Do nothing: the order is drawn inside the timed part, as in a trial."""

    def run(self) -> None:
        """Train and validate for one epoch."""
        metrics = self._loop.epoch()
        self.losses.append((metrics["loss"], metrics["val_loss"]))


def built(workload: Workload, config: Config, strategy: tf.distribute.Strategy) -> keras.Model:
    """Return the model with the weights that a trial starts from."""
    seed_python_and_numpy(SEED)
    with strategy.scope():
        return workload.build_model(config)


def order(epoch: int) -> np.ndarray:
    """Return the order of the rows in an epoch, as a trial draws it."""
    return epoch_order(SEED, epoch, NUM_TRAIN)


def assert_equal_losses(name: str, contestants: Mapping[str, Any], num_epochs: int) -> float:
    """Return the largest relative difference of any loss in the first epochs to the first's."""
    kept = {label: np.array(each.losses[:num_epochs]) for label, each in contestants.items()}
    reference = next(iter(kept.values()))
    worst = 0.0
    for label, losses in kept.items():
        difference = float(np.max(np.abs(losses / reference - 1)))
        assert difference <= TOLERANCE, (
            f"{name}: {label} differs by {difference:.1e} from tune_tf: {losses} {reference}"
        )
        worst = max(worst, difference)
    return worst


def split_cpu(num_threads: int, num_devices: int = 2) -> None:
    """Give TensorFlow some logical CPUs and a number of threads, before its first operation."""
    tf.config.experimental.enable_tensor_float_32_execution(False)  # of GPUs: losses are compared
    tf.config.threading.set_intra_op_parallelism_threads(num_threads)
    tf.config.threading.set_inter_op_parallelism_threads(num_threads)
    cpu = tf.config.list_physical_devices("CPU")[0]
    parts = [tf.config.LogicalDeviceConfiguration()] * num_devices
    tf.config.set_logical_device_configuration(cpu, parts)


def epoch_arguments(description: str | None, *, quick: str) -> argparse.Namespace:
    """Return the command-line arguments of a benchmark of epochs.

    Args:
        description: What it measures.
        quick: What its smoke run does.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help=f"smoke run: {quick}")
    parser.add_argument("--num-rounds", type=int, default=9, help="rounds of every contestant")
    parser.add_argument("--num-repeats", type=int, default=3, help="epochs a turn, fast ones only")
    parser.add_argument("--num-checked-epochs", type=int, default=3, help="epochs compared first")
    parser.add_argument("--num-threads", type=int, default=2, help="threads of TensorFlow")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.num_rounds, arguments.num_repeats = 2, 1
    return arguments
