"""Asynchronous against synchronous updates, with one of two workers five times slower.

Both train the same model on the same rows in batches of the same size. What is counted are
gradients of a whole batch that were applied, in a second of training. The slow worker sleeps, after
each gradient, four times as long as it took to compute it.
"""

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras
import ray
from measuring.interleaved import take_turns
from measuring.summary import Target, print_summary, print_table

from tune_tf import Asynchronous, Data, MultiWorker, Workload, trainable
from tune_tf.workload import Config

_SEED = 7
_NUM_WORKERS = 2
_NUM_ROWS = 1792
_CONFIG = {"filters": 32, "learning_rate": 0.002, "batch_size": 64}
_NUM_BATCHES = _NUM_ROWS // _CONFIG["batch_size"]
_TIMES_SLOWER = 5
_TARGETS = {"gradients_per_s_over_synchronous": Target(1.5)}


class DigitsWithASlowWorker(Workload):
    """Digits workload with a slow training step in the process that started first.

    Args:
        folder: Where that process leaves its id; one of their own for each trial.
        times: How many times longer.
    """

    def __init__(self, folder: str, times: float) -> None:
        self._folder = folder
        self._times = times
        self._is_slow: bool | None = None

    def load_data(self, config: Config) -> Data:
        """Return the digits, in whole batches."""
        from sklearn.datasets import load_digits

        digits = load_digits()
        x = (digits.images[..., None] / 16).astype("float32")
        return Data((x[:_NUM_ROWS], digits.target[:_NUM_ROWS].astype("int32")))

    def build_model(self, config: Config) -> keras.Model:
        """Return a compiled convolutional network."""
        model = keras.Sequential(
            [
                keras.Input((8, 8, 1)),
                keras.layers.Conv2D(config["filters"], 3, activation="relu"),
                keras.layers.Conv2D(config["filters"], 3, activation="relu"),
                keras.layers.Flatten(),
                keras.layers.Dense(10),
            ]
        )
        model.compile(
            keras.optimizers.SGD(config["learning_rate"], momentum=0.9),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )
        return model

    def train_step(self, model: keras.Model, batch: Any) -> dict[str, Any]:
        """Update by a GradientTape; a slow worker waits first."""
        import tensorflow as tf

        x, y = batch
        begun = tf.numpy_function(time.perf_counter, [], tf.float64)
        with tf.control_dependencies([begun]):
            x = tf.identity(x)
        with tf.GradientTape() as tape:
            loss = model.compute_loss(x, y, model(x, training=True))
        variables = model.trainable_variables
        gradients = tape.gradient(loss, variables)
        with tf.control_dependencies(gradients):
            waited = tf.numpy_function(self._wait, [begun], tf.float64)
        with tf.control_dependencies([waited]):
            gradients = [tf.identity(gradient) for gradient in gradients]
        model.optimizer.apply(gradients, variables)
        num_replicas = tf.distribute.get_strategy().num_replicas_in_sync
        (loss_metric,) = model.metrics
        loss_metric.update_state(loss * num_replicas, sample_weight=tf.shape(x)[0])
        return model.get_metrics_result()

    def _wait(self, begun: float) -> float:
        took = time.perf_counter() - begun
        if self._slow():
            time.sleep((self._times - 1) * took)
        return took

    def _slow(self) -> bool:
        if self._is_slow is None:
            try:
                with Path(self._folder, "slow").open("x") as file:
                    file.write(str(os.getpid()))
                self._is_slow = True
            except FileExistsError:
                self._is_slow = False
        return self._is_slow


class _Trial:
    """Trial that trains some epochs per turn, after one that traces.

    Args:
        parallelism: How it is spread.
        num_epochs: A turn.
    """

    def __init__(self, parallelism: Any, num_epochs: int) -> None:
        self._num_epochs = num_epochs
        workload = DigitsWithASlowWorker(tempfile.mkdtemp(), _TIMES_SLOWER)
        self.trial = trainable(workload, parallelism, seed=_SEED)(config=_CONFIG)
        self.results = [self.trial.train()]

    def prepare(self) -> None:
        """Do nothing."""

    def run(self) -> None:
        """Train."""
        self.results += [self.trial.train() for _ in range(self._num_epochs)]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smoke run: two rounds")
    parser.add_argument("--num-rounds", type=int, default=7, help="turns of both")
    parser.add_argument("--num-epochs", type=int, default=3, help="epochs a turn")
    parser.add_argument("--max-staleness", type=int, default=Asynchronous().max_staleness)
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.num_rounds, arguments.num_epochs = 2, 1
    return arguments


def main() -> None:
    """Train both in turns and print the ratio of their gradients per second."""
    arguments = _arguments()
    asynchronous = Asynchronous(_NUM_WORKERS, max_staleness=arguments.max_staleness)
    ray.init(
        address="local",
        num_cpus=2 * _NUM_WORKERS + asynchronous.server_cpus,  # both are there all the time
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
    )
    trials = {
        "synchronous": _Trial(MultiWorker(_NUM_WORKERS), arguments.num_epochs),
        "asynchronous": _Trial(asynchronous, arguments.num_epochs),
    }
    timings = take_turns(trials, num_rounds=arguments.num_rounds)
    for each in trials.values():
        each.trial.stop()
    ray.shutdown()
    ratio = timings.ratio("synchronous", "asynchronous")
    gradients = _NUM_BATCHES * arguments.num_epochs
    rate = {name: gradients / timings.median_s(name) for name in trials}
    loss = {name: each.results[-1]["loss"] for name, each in trials.items()}
    reported = trials["asynchronous"].results[1:]
    stale = {
        "staleness_mean": statistics.fmean(each["async/staleness_mean"] for each in reported),
        "staleness_max": max(each["async/staleness_max"] for each in reported),
        "gradients_stale": sum(each["async/gradients_stale"] for each in reported),
    }
    rows = [(name, f"{rate[name]:.1f}", f"{loss[name]:.4f}") for name in trials]
    print_table(("updates", "gradients/s", f"loss after {len(reported) + 1} epochs"), rows)
    print(f"gradients/s over synchronous: {ratio}")
    print(
        "staleness: mean {staleness_mean:.2f}, at most {staleness_max}; dropped: "
        "{gradients_stale} too old".format(**stale)
    )
    print_summary(
        "asynchronous",
        {"gradients_per_s_over_synchronous": ratio.median},
        _TARGETS,
        gradients_per_s={name: round(value, 1) for name, value in rate.items()},
        loss={name: round(value, 4) for name, value in loss.items()},
        num_gradients=len(reported) * _NUM_BATCHES,
        times_slower=_TIMES_SLOWER,
        **stale,
    )


if __name__ == "__main__":
    main()
