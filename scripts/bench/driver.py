"""Time and memory of a sweep's driver over 1,000 trials of 0.1 s.

The same Trainable runs under `run_sweep` with search, tracking and a record, and under plain
`tune.run` with Ray's OptunaSearch and MLflowLoggerCallback; then both without tracking. Each run is
a process of its own with its own Ray, by turns. The overhead of a trial is the time from one tenth
of the trials to the last, divided by their number, less what the trials themselves take.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import psutil
import ray
from measuring.interleaved import ratio_of
from measuring.summary import Target, print_summary, print_table
from ray import tune
from ray.air.integrations.mlflow import MLflowLoggerCallback
from ray.tune.search.optuna import OptunaSearch

from tune_tf import Data, SweepConfig, TrialResources, Workload, run_sweep, trainable

_TARGETS = {
    "overhead_ours_over_plain": Target(1.0, "at most"),
    "overhead_untracked_ours_over_plain": Target(1.0, "at most"),
    "driver_growth_mb": Target(50, "at most"),
}
_ARMS = ("ours", "plain", "ours_untracked", "plain_untracked")
_TRIAL_S = 0.1
_NUM_SLOTS = 2
_MB = 2**20


class _Pause(keras.callbacks.Callback):
    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Sleep as long as a short epoch takes."""
        time.sleep(_TRIAL_S)


class Short(Workload):
    """Trial of one epoch that takes a tenth of a second."""

    def load_data(self, config: dict[str, Any]) -> Data:
        """Return a few rows."""
        x = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
        y = x.sum(1, keepdims=True)
        return Data(train=(x, y), validation=(x, y))

    def build_model(self, config: dict[str, Any]) -> keras.Model:
        """Return a linear model."""
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(config["learning_rate"]), loss="mse")
        return model

    def callbacks(self, config: dict[str, Any]) -> list[keras.callbacks.Callback]:
        """Return the pause."""
        return [_Pause()]


class _Watch(tune.Callback):
    """Callback that records time and memory at a tenth of the trials and at the end."""

    def __init__(self, num_trials: int) -> None:
        self._marks = {num_trials // 10: "begin", num_trials: "end"}
        self._num_ended = 0
        self.seen: dict[str, tuple[float, int]] = {}

    def on_trial_complete(self, *arguments: Any, **info: Any) -> None:
        """Count."""
        self._num_ended += 1
        if self._num_ended in self._marks:
            rss = psutil.Process().memory_info().rss
            self.seen[self._marks[self._num_ended]] = time.perf_counter(), rss


def _ours(folder: Path, watch: _Watch, num_trials: int, *, tracked: bool) -> None:
    config = SweepConfig.from_dict(
        {
            "name": "short",
            "workload": "driver:Short",
            "objective": {"metric": "val_loss", "mode": "min"},
            "space": {"learning_rate": {"loguniform": [1e-4, 1e-1]}, "batch_size": 32},
            "epochs": 1,
            "resources": {"cpus": 1},
            "budget": {"num_samples": num_trials},
            "storage_path": str(folder / "sweeps"),
            "mlflow": {"tracking_uri": f"sqlite:///{folder}/mlflow.db", "log_best_model": False}
            if tracked
            else None,
        }
    )
    run_sweep(config, base_dir=Path(__file__).parent, callbacks=[watch])


def _plain(folder: Path, watch: _Watch, num_trials: int, *, tracked: bool) -> None:
    callbacks: list[tune.Callback] = [watch]
    if tracked:
        store = f"sqlite:///{folder}/mlflow.db"
        callbacks.append(MLflowLoggerCallback(tracking_uri=store, experiment_name="short"))
    tune.run(
        trainable(Short, seed=0, resources=TrialResources(cpus=1)),  # no GPU, as ours
        config={"learning_rate": tune.loguniform(1e-4, 1e-1), "batch_size": 32},
        stop={"training_iteration": 1},
        search_alg=OptunaSearch(metric="val_loss", mode="min", seed=0),
        num_samples=num_trials,
        max_concurrent_trials=_NUM_SLOTS,
        reuse_actors=True,
        storage_path=str(folder),
        checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=True),
        callbacks=callbacks,
        verbose=0,
    )


def _run(arm: str, num_trials: int) -> None:
    """Run one arm in this process; print its cost as JSON."""
    watch = _Watch(num_trials)
    drive = _ours if arm.startswith("ours") else _plain
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
        ray.init(num_cpus=_NUM_SLOTS, include_dashboard=False, log_to_driver=False)
        drive(Path(folder), watch, num_trials, tracked="untracked" not in arm)
        ray.shutdown()
    (began, before), (ended, after) = watch.seen["begin"], watch.seen["end"]
    each_s = (ended - began) / (num_trials - num_trials // 10)
    overhead_s = each_s - _TRIAL_S / _NUM_SLOTS
    sys.stdout.write(
        json.dumps({"overhead_s": overhead_s, "growth_mb": (after - before) / _MB}) + "\n"
    )


def _measured(arm: str, num_trials: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--arm", arm, "--num-trials", str(num_trials)]
    done = subprocess.run(
        command, cwd=Path(__file__).parent, stdout=subprocess.PIPE, text=True, check=True
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Run all arms in turns, and compare them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num-trials", type=int, default=1000)
    parser.add_argument("--num-rounds", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="100 trials")
    parser.add_argument("--arm", choices=_ARMS, help="run this one alone")
    arguments = parser.parse_args()
    num_trials = 100 if arguments.quick else arguments.num_trials
    if arguments.arm:
        _run(arguments.arm, num_trials)
        return
    found: dict[str, list[dict[str, float]]] = {arm: [] for arm in _ARMS}
    for number in range(arguments.num_rounds):
        for arm in _ARMS[number % len(_ARMS) :] + _ARMS[: number % len(_ARMS)]:
            found[arm].append(_measured(arm, num_trials))
    overhead = {arm: [each["overhead_s"] for each in runs] for arm, runs in found.items()}
    growth = {arm: statistics.median(r["growth_mb"] for r in runs) for arm, runs in found.items()}
    print_table(
        (f"{num_trials} trials of {_TRIAL_S} s", "overhead a trial", "driver grew by"),
        [
            (arm, f"{statistics.median(overhead[arm]) * 1e3:.1f} ms", f"{growth[arm]:.1f} MB")
            for arm in _ARMS
        ],
    )

    def ratio(ours: str, plain: str) -> float:
        pairs = zip(overhead[ours], overhead[plain], strict=True)
        return ratio_of([a / b for a, b in pairs]).median

    print_summary(
        "driver",
        {
            "overhead_ours_over_plain": ratio("ours", "plain"),
            "overhead_untracked_ours_over_plain": ratio("ours_untracked", "plain_untracked"),
            "driver_growth_mb": growth["ours"],
            "plain_growth_mb": growth["plain"],
        },
        _TARGETS,
        num_trials=num_trials,
    )


if __name__ == "__main__":
    main()
