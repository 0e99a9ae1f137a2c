"""Overhead of a sweep besides its trials: MLflow's store and the report."""

import json
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray

from tune_tf.config import SweepConfig
from tune_tf.outcome import Outcome
from tune_tf.simulation import Trace

_METRICS = 8  # typical number of metrics per result besides the objective


@dataclass(frozen=True)
class MeasuredOverhead:
    """Duration of a task, and total size of the files it wrote."""

    seconds: float
    num_bytes: int


def start_store_creation() -> Any:
    """Start creating an empty MLflow store in another process; return Ray's object reference."""
    return ray.remote(num_cpus=0, max_retries=0)(_open_store).remote()


def time_report(config: SweepConfig, trace: Trace, iteration_s: float) -> MeasuredOverhead:
    """Time the report of a simulated sweep with iterations of equal length, in a fresh process."""
    task = ray.remote(num_cpus=0, max_retries=0)(_write_report)
    overhead: MeasuredOverhead = ray.get(task.remote(config, trace, iteration_s))
    return overhead


def _open_store() -> MeasuredOverhead:
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        from tune_tf.tracking.store import connect

        path = Path(folder, "mlflow.db")
        connect(f"sqlite:///{path}").search_experiments()
        return MeasuredOverhead(time.perf_counter() - begun, path.stat().st_size)


def _write_report(config: SweepConfig, trace: Trace, iteration_s: float) -> MeasuredOverhead:
    from tune_tf.report import write_report as write
    from tune_tf.results import SweepResult, TrialResult

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "sweep.yaml").write_text(config.to_yaml())
        reports: dict[int, list[tuple[int, float]]] = {}
        for event in trace.events:
            reports.setdefault(event.trial, []).append((event.iteration, event.value))
        metric = trace.objective.metric
        begun_s = time.time()
        trials = []
        for trial in trace.trials:
            reported = reports.get(trial.number, [])
            path = folder / f"trial_{trial.number:05d}"
            path.mkdir()
            lines = (
                json.dumps(_line(trial.config, metric, iteration, value, begun_s, iteration_s))
                for iteration, value in reported
            )
            (path / "result.json").write_text("".join(f"{line}\n" for line in lines))
            done = bool(reported) and reported[-1][0] >= trace.max_t
            trials.append(
                TrialResult(
                    trial_id=f"{trial.number:08d}",
                    number=trial.number,
                    config=trial.config,
                    outcome=Outcome.COMPLETED if done else Outcome.PRUNED,
                    iterations=reported[-1][0] if reported else 0,
                    metrics={metric: reported[-1][1]} if reported else {},
                )
            )
        result = SweepResult(folder.name, folder, config, folder, tuple(trials))
        begun = time.perf_counter()
        files = write(result, folder / "report")
        took = time.perf_counter() - begun
        return MeasuredOverhead(took, sum(path.stat().st_size for path in files.values()))


def _line(
    config: Mapping[str, Any],
    metric: str,
    iteration: int,
    value: float,
    begun_s: float,
    iteration_s: float,
) -> dict[str, Any]:
    """Return the line of an iteration in Tune's ``result.json``."""
    return {
        metric: value,
        **{f"metric_{number}": value for number in range(_METRICS)},
        "training_iteration": iteration,
        "timestamp": int(begun_s + iteration * iteration_s),
        "time_total_s": iteration * iteration_s,
        "time_since_restore": iteration * iteration_s,
        "pid": 1,
        "hostname": "here",
        "config": dict(config),
    }
