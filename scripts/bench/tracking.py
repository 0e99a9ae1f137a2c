"""Overhead and completeness of tracking.

First, one trial reports 20 metrics to this package's callback and to Ray's own MLflow callback,
both on SQLite, in one run of Tune: how long does each hold up the driver? Then equal sweeps with
tracking and without by turns: of the main job's network, which is judged, and of one whose epochs
take milliseconds, so that points come as fast as Tune takes them. Then 200 trials report to a
server over HTTP, and every point is looked up there. At last the report of a sweep of 2,000 trials
is written.
"""

import argparse
import logging
import os
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")

import psutil
import ray
from measuring.interleaved import ratio_of, take_turns
from measuring.report_page import measure_report
from measuring.summary import Target, print_summary, print_table
from measuring.tracking_server import tracking_server
from ray import tune
from ray.air.integrations.mlflow import MLflowLoggerCallback

from tune_tf import Objective, SweepConfig, run_sweep
from tune_tf.tracking import MLflowCallback

_TARGETS = {
    "ray_over_ours_blocked": Target(15),
    "sweep_on_over_off": Target(1.03, "at most"),
    "missing_points": Target(0, "at most"),
    "driver_growth_over_off_mb": Target(20, "at most"),
    "report_s": Target(30, "at most"),
}
_NUM_METRICS = 20
_NUM_SLOTS = 2
_OBJECTIVE = Objective("metric_00", "max")
_SPACES: dict[str, dict[str, Any]] = {
    "DigitsCNN": {"filters": {"choice": [8, 16, 32]}},
    "DigitsMLP": {"width": {"choice": [32, 64]}},
}
_LEARNING = {"learning_rate": {"loguniform": [1e-4, 1e-1]}, "batch_size": 32}


def _value(trial: int, step: int, metric: int) -> float:
    """Return a value unique to a point."""
    return trial + step / 1_000 + metric / 1_000_000


class _Reporting(tune.Trainable):
    """Trainable that only reports numbers."""

    def setup(self, config: dict[str, Any]) -> None:
        """Keep the trial's number and the number of metrics."""
        self.reset_config(config)

    def reset_config(self, config: dict[str, Any]) -> bool:
        """Start another trial."""
        self._trial, self._num_metrics = config["trial"], config["num_metrics"]
        return True

    def step(self) -> dict[str, float]:
        """Return the metrics of one iteration."""
        step = self.iteration + 1
        return {
            f"metric_{metric:02d}": _value(self._trial, step, metric)
            for metric in range(self._num_metrics)
        }

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        """Return an empty checkpoint."""
        return {}

    def load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restore nothing."""


class _Timed:
    """Mixin that times a Tune callback's handling of results."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.seconds: list[float] = []

    def on_trial_result(self, *arguments: Any, **info: Any) -> None:
        """Time it."""
        started = time.perf_counter()
        super().on_trial_result(*arguments, **info)  # type: ignore[misc]
        self.seconds.append(time.perf_counter() - started)


class _Ours(_Timed, MLflowCallback):
    """Our callback, timed."""


class _Rays(_Timed, MLflowLoggerCallback):
    """Ray's, timed."""


def _points(database: Path, experiment: str) -> dict[tuple[str, str, int], list[float]]:
    """Return the values of all trials in a store by run name, metric and step."""
    query = """
        select runs.name, metrics.key, metrics.step, metrics.value from metrics
        join runs using (run_uuid) join experiments using (experiment_id)
        where experiments.name = ? and metrics.key like 'metric%'
        and run_uuid not in (select value from tags where key = 'mlflow.parentRunId')
    """
    found: dict[tuple[str, str, int], list[float]] = {}
    with sqlite3.connect(database) as connection:
        for name, key, step, value in connection.execute(query, (experiment,)):
            found.setdefault((name, key, step), []).append(value)
    return found


def _blocked(folder: Path, num_results: int) -> dict[str, float]:
    """Pass the same trial to both callbacks; compare how long they block the driver."""
    ours = _Ours(f"sqlite:///{folder}/ours.db", "blocked", objective=_OBJECTIVE)
    rays = _Rays(tracking_uri=f"sqlite:///{folder}/rays.db", experiment_name="blocked")
    tune.run(
        _Reporting,
        config={"trial": 0, "num_metrics": _NUM_METRICS},
        stop={"training_iteration": num_results},
        callbacks=[ours, rays],
        storage_path=str(folder / "ray"),
        verbose=0,
    )
    own, other = (_points(folder / f"{name}.db", "blocked") for name in ("ours", "rays"))
    assert len(own) == num_results * _NUM_METRICS
    assert own == other, "the two stores hold different points"
    # The first results pay for what is loaded late.
    pairs = list(zip(ours.seconds, rays.seconds, strict=True))[3:]
    ratio = ratio_of([slow / fast for fast, slow in pairs])
    medians = [1000 * statistics.median(side) for side in zip(*pairs, strict=True)]
    print_table(
        ("callback", "blocked a result, ms"),
        [
            (name, f"{median:.3f}")
            for name, median in zip(("tune_tf", "Ray's"), medians, strict=True)
        ],
    )
    print(f"Ray's / ours: {ratio}; {len(own)} points are equal in both stores\n")
    return {
        "ray_over_ours_blocked": ratio.median,
        "blocked_ms": medians[0],
        "blocked_ray_ms": medians[1],
    }


class _Sweep:
    """Sweep of equal trials, with or without tracking.

    Args:
        folder: Where the sweeps go.
        mlflow: Settings of tracking; None for none.
        workload: Workload of the trials.
        num_trials: Trials.
        max_t: Epochs of each.
    """

    def __init__(
        self,
        folder: Path,
        mlflow: Mapping[str, Any] | None,
        workload: str,
        num_trials: int,
        max_t: int,
    ) -> None:
        self._config = SweepConfig(
            name="bench",
            workload=f"tune_tf.workloads.digits:{workload}",
            objective={"metric": "val_accuracy", "mode": "max"},
            space={**_SPACES[workload], **_LEARNING},
            seed=1,
            searcher={"sampler": "random"},
            epochs=max_t,
            resources={"cpus": 1},
            budget={"num_samples": num_trials},
            mlflow=mlflow,
            storage_path=str(folder / "sweeps"),
            max_concurrent_trials=_NUM_SLOTS,
        )
        self.values: list[float] = []

    def prepare(self) -> None:
        """Do nothing."""

    def run(self) -> None:
        """Run the sweep and keep the trials' values."""
        result = run_sweep(self._config)
        self.values = [trial.metrics["val_accuracy"] for trial in result.trials]


def _sweep_wall(
    folder: Path, workload: str, num_trials: int, max_t: int, num_rounds: int
) -> dict[str, float]:
    """Run sweeps with and without tracking in turns; return the ratios and the seconds."""
    uri = f"sqlite:///{folder}/sweeps.db"
    bare = {"tracking_uri": uri, "experiment_name": "bare", "log_best_model": False}
    whole = {"tracking_uri": uri, "experiment_name": "whole"}
    settings = {"off": None, "on": bare, "with_best_model": whole}
    sweeps = {
        name: _Sweep(folder, mlflow, workload, num_trials, max_t)
        for name, mlflow in settings.items()
    }
    sweeps["on"].run()  # MLflow makes its tables, worker processes load TensorFlow
    timings = take_turns(sweeps, num_rounds=num_rounds)
    values = [sweep.values for sweep in sweeps.values()]
    assert all(each == values[0] for each in values), "tracking changed a result"
    print_table(
        ("tracking", f"{workload}, {num_trials} trials x {max_t} epochs, s"),
        [(name, f"{timings.median_s(name):.2f}") for name in sweeps],
    )
    ratios = {name: timings.ratio(name, "off") for name in sweeps if name != "off"}
    print("; ".join(f"{name} / off: {ratio}" for name, ratio in ratios.items()) + "\n")
    return {
        **{f"{name}_over_off": ratio.median for name, ratio in ratios.items()},
        **{f"{name}_s": timings.median_s(name) for name in sweeps},
    }


class _Memory(tune.Callback):
    """Callback that samples the driver's memory.

    Args:
        num_results: How many will come.
    """

    def __init__(self, num_results: int) -> None:
        self._process = psutil.Process()
        self._num_results = num_results
        self._every = max(1, num_results // 100)
        self._count = 0
        self._marks: list[float] = []

    def on_trial_result(self, *arguments: Any, **info: Any) -> None:
        """Sample the memory after a fifth of the results."""
        self._count += 1
        if self._count >= self._num_results / 5 and self._count % self._every == 0:
            self._marks.append(self._process.memory_info().rss / 1e6)

    @property
    def growth_mb(self) -> float:
        """Growth from the first tenth of the samples to the last."""
        tenth = max(1, len(self._marks) // 10)
        return statistics.fmean(self._marks[-tenth:]) - statistics.fmean(self._marks[:tenth])


def _many(folder: Path, size: tuple[int, int, int], *own: tune.Callback) -> tuple[float, float]:
    """Run trials that only report; return the seconds and the driver's memory growth in MB."""
    num_trials, num_results, num_metrics = size
    memory = _Memory(num_trials * num_results)
    started = time.perf_counter()
    tune.run(
        _Reporting,
        config={"trial": tune.grid_search(list(range(num_trials))), "num_metrics": num_metrics},
        stop={"training_iteration": num_results},
        callbacks=[*own, memory],
        storage_path=str(folder / "many"),
        reuse_actors=True,
        max_concurrent_trials=_NUM_SLOTS,
        trial_name_creator=lambda trial: f"trial_{trial.config['trial']}",
        verbose=0,
    )
    return time.perf_counter() - started, memory.growth_mb


def _server(folder: Path, size: tuple[int, int, int]) -> dict[str, float]:
    """Report to a server over HTTP; check each point in its database."""
    num_trials, num_results, num_metrics = size
    off_s, off_mb = _many(folder, size)
    with tracking_server(folder) as (uri, database):
        callback = MLflowCallback(uri, "many", objective=_OBJECTIVE)
        on_s, on_mb = _many(folder, size, callback)
    found = _points(database, "many")
    expected = {
        (f"trial_{trial}", f"metric_{metric:02d}", step): [_value(trial, step, metric)]
        for trial in range(num_trials)
        for step in range(1, num_results + 1)
        for metric in range(num_metrics)
    }
    missing = sum(found.get(key) != values for key, values in expected.items())
    missing += sum(key not in expected for key in found)
    print_table(
        ("tracking", "seconds", "driver grew by, MB"),
        [("off", f"{off_s:.1f}", f"{off_mb:.1f}"), ("HTTP", f"{on_s:.1f}", f"{on_mb:.1f}")],
    )
    print(f"{len(expected)} points, {missing} of them missing, doubled or wrong\n")
    return {
        "points": float(len(expected)),
        "missing_points": float(missing),
        "driver_growth_over_off_mb": on_mb - off_mb,
        "server_over_off_wall": on_s / off_s,
    }


@contextmanager
def _cluster() -> Iterator[None]:
    ray.init(num_cpus=_NUM_SLOTS, include_dashboard=False, log_to_driver=False)
    try:
        yield
    finally:
        ray.shutdown()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smoke run: little of everything")
    parser.add_argument("--num-results", type=int, default=60, help="for both callbacks")
    parser.add_argument("--num-rounds", type=int, default=3, help="sweeps of each kind")
    parser.add_argument("--num-trials", type=int, default=32, help="of each sweep")
    parser.add_argument("--max-t", type=int, default=27, help="epochs of each trial")
    parser.add_argument("--short-max-t", type=int, default=60, help="and of milliseconds each")
    parser.add_argument("--size", type=int, nargs=3, default=[200, 50, 10], help="to the server")
    parser.add_argument("--report", type=int, nargs=2, default=[2000, 27], help="trials, epochs")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.num_results, arguments.num_rounds, arguments.num_trials = 8, 1, 4
        arguments.max_t = arguments.short_max_t = 3
        arguments.size, arguments.report = [6, 5, 10], [40, 9]
    return arguments


def main() -> None:
    """Run all parts and print the summary."""
    arguments = _arguments()
    logging.getLogger("ray.tune").setLevel(logging.ERROR)
    jobs = (("DigitsCNN", arguments.max_t), ("DigitsMLP", arguments.short_max_t))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with _cluster():
            values = _blocked(folder, arguments.num_results)
            for job, (workload, max_t) in zip(("sweep", "short"), jobs, strict=True):
                walls = _sweep_wall(
                    folder, workload, arguments.num_trials, max_t, arguments.num_rounds
                )
                values |= {f"{job}_{name}": value for name, value in walls.items()}
            values |= _server(folder, tuple(arguments.size))
        values |= measure_report(folder, *arguments.report)
    print_summary("tracking", values, _TARGETS)


if __name__ == "__main__":
    main()
