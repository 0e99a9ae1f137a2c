"""Duration of a trial of two workers: MultiWorkerTrainable against Ray's TensorflowTrainer.

Both train the same model with the same GradientTape step from the same weights on the same rows in
the same batches, under Ray on this machine, and must arrive at the same losses. What is timed is
all of it: from the call to the last epoch's metrics, processes and tracing included.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")

import keras
import numpy as np
import ray
from baselines import tensorflow_trainer
from measuring.interleaved import take_turns
from measuring.summary import Target, print_summary, print_table
from ray import tune
from ray.train import RunConfig, ScalingConfig
from ray.train.tensorflow import TensorflowTrainer

from tune_tf import Data, Mirrored, MultiWorker, Workload, trainable
from tune_tf.trainables.trial_settings import seed_of_trial
from tune_tf.workload import Config

_SEED = 7
_NUM_WORKERS = 2
_NUM_TRAIN, _NUM_VALIDATION = 1408, 384
_CONFIG = {"width": 128, "learning_rate": 0.01, "batch_size": 64}
_TOLERANCE = 1e-5
_TARGETS = {"wall_over_tensorflow_trainer": Target(0.5, "at most")}


class DigitsByTape(Workload):
    """Digits workload with a custom step that records when a process finished its first batch.

    Args:
        folder: Where each process leaves the time.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def load_data(self, config: Config) -> Data:
        """Return the digits, in whole batches."""
        from sklearn.datasets import load_digits

        digits = load_digits()
        x, y = (digits.data / 16).astype("float32"), digits.target.astype("int32")
        end = _NUM_TRAIN + _NUM_VALIDATION
        return Data((x[:_NUM_TRAIN], y[:_NUM_TRAIN]), (x[_NUM_TRAIN:end], y[_NUM_TRAIN:end]))

    def build_model(self, config: Config) -> keras.Model:
        """Return a compiled perceptron."""
        model = keras.Sequential(
            [
                keras.Input((64,)),
                keras.layers.Dense(config["width"], "relu"),
                keras.layers.Dense(10),
            ]
        )
        model.compile(
            keras.optimizers.Adam(config["learning_rate"]),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
        return model

    def train_step(self, model: keras.Model, batch: Any) -> dict[str, Any]:
        """Update by a GradientTape, and record the time of the first batch."""
        import tensorflow as tf

        x, y = batch
        with tf.GradientTape() as tape:
            y_pred = model(x, training=True)
            loss = model.compute_loss(x, y, y_pred)
        variables = model.trainable_variables
        model.optimizer.apply(tape.gradient(loss, variables), variables)
        rows = tf.shape(x)[0]
        num_replicas = tf.distribute.get_strategy().num_replicas_in_sync
        for metric in model.metrics:
            if metric.name == "loss":
                metric.update_state(loss * num_replicas, sample_weight=rows)
            else:
                metric.update_state(y, y_pred)
        with tf.control_dependencies([rows]):
            tf.numpy_function(self._note_first_batch, [], [])
        return model.get_metrics_result()

    def _note_first_batch(self) -> None:
        note = Path(self._folder, str(os.getpid()))
        if not note.exists():
            note.write_text(str(time.time()))


class _Run:
    """Contestant with its reports and the duration of its first batch."""

    def __init__(self, num_epochs: int) -> None:
        self.num_epochs = num_epochs
        self.losses: list[list[tuple[float, float]]] = []
        self.first_batch_s: list[float] = []
        self._folder = ""

    def prepare(self) -> None:
        self._folder = tempfile.mkdtemp()

    def run(self) -> None:
        started = time.time()
        self.losses.append(self.train(DigitsByTape(self._folder)))
        notes = [float(note.read_text()) for note in Path(self._folder).iterdir()]
        self.first_batch_s.append(max(notes) - started)

    def train(self, workload: Workload) -> list[tuple[float, float]]:
        raise NotImplementedError


class _Losses(tune.Callback):
    """Callback that keeps the losses of a trial."""

    def __init__(self) -> None:
        self.losses: list[tuple[float, float]] = []

    def on_trial_result(
        self, iteration: int, trials: Any, trial: Any, result: Any, **info: Any
    ) -> None:
        self.losses.append((result["loss"], result["val_loss"]))


class _Ours(_Run):
    """Trial under ``tune.run``."""

    def train(self, workload: Workload) -> list[tuple[float, float]]:
        kept = _Losses()
        tune.run(
            trainable(workload, MultiWorker(_NUM_WORKERS), seed=_SEED),
            config=_CONFIG,
            stop={"training_iteration": self.num_epochs},
            storage_path=tempfile.mkdtemp(),
            callbacks=[kept],
            verbose=0,
        )
        return kept.losses


class _Theirs(_Run):
    """Trial under Ray's ``TensorflowTrainer``, as documented."""

    def train(self, workload: Workload) -> list[tuple[float, float]]:
        losses = Path(tempfile.mkdtemp(), "losses.json")
        TensorflowTrainer(
            tensorflow_trainer.train,
            train_loop_config={
                "workload": workload,
                "config": _CONFIG,
                "seed": _seed_of_only_trial(),
                "num_epochs": self.num_epochs,
                "losses": str(losses),
            },
            scaling_config=ScalingConfig(num_workers=_NUM_WORKERS, resources_per_worker={"CPU": 1}),
            run_config=RunConfig(storage_path=tempfile.mkdtemp()),
        ).fit()
        return [tuple(pair) for pair in json.loads(losses.read_text())]


def _seed_of_only_trial() -> int:
    return seed_of_trial(_SEED, "trial_00000", "trial_00000")


def _on_one_device(num_epochs: int) -> list[tuple[float, float]]:
    """Return the losses of the same trial in this process on one device."""
    alone = trainable(DigitsByTape(tempfile.mkdtemp()), Mirrored(), seed=_SEED)(config=_CONFIG)
    results = [alone.train() for _ in range(num_epochs)]
    alone.stop()
    return [(result["loss"], result["val_loss"]) for result in results]


def _largest_difference(runs: Mapping[str, _Run], expected: list[tuple[float, float]]) -> float:
    """Return the largest relative difference of any loss of any run to those of one device."""
    worst = 0.0
    for name, run in runs.items():
        for losses in run.losses:
            difference = float(np.max(np.abs(np.array(losses) / np.array(expected) - 1)))
            assert difference <= _TOLERANCE, f"{name} is off by {difference:.1e}: {losses}"
            worst = max(worst, difference)
    return worst


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smoke run: one round")
    parser.add_argument("--num-rounds", type=int, default=3, help="rounds of both")
    parser.add_argument("--num-epochs", type=int, default=4, help="epochs of a trial")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.num_rounds = 1
    return arguments


def main() -> None:
    """Run both in turns and print the ratio of their wall times."""
    arguments = _arguments()
    ray.init(
        address="local",
        num_cpus=_NUM_WORKERS,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
    )
    runs: dict[str, _Run] = {
        "tune_tf": _Ours(arguments.num_epochs),
        "tensorflow_trainer": _Theirs(arguments.num_epochs),
    }
    timings = take_turns(runs, num_rounds=arguments.num_rounds)
    ray.shutdown()
    worst = _largest_difference(runs, _on_one_device(arguments.num_epochs))
    ratio = timings.ratio("tune_tf", "tensorflow_trainer")
    first = {name: statistics.median(run.first_batch_s) for name, run in runs.items()}
    rows = [(name, f"{timings.median_s(name):.1f} s", f"{first[name]:.1f} s") for name in runs]
    print(f"losses equal to those of one device within {worst:.1e}")
    print_table(("contestant", "wall", "start to first batch"), rows)
    print(f"wall of tune_tf over TensorflowTrainer: {ratio}")
    print_summary(
        "multi_worker",
        {
            "wall_over_tensorflow_trainer": ratio.median,
            "first_batch_over_tensorflow_trainer": first["tune_tf"] / first["tensorflow_trainer"],
        },
        _TARGETS,
        wall_s={name: round(timings.median_s(name), 2) for name in runs},
        first_batch_s={name: round(seconds, 2) for name, seconds in first.items()},
        largest_difference=worst,
        num_epochs=arguments.num_epochs,
    )


if __name__ == "__main__":
    main()
