"""Overhead of a sweep besides its trials: MLflow's store and the report."""

import json
import tempfile
import time
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
        from tune_tf.tracking.runs import connect

        path = Path(folder, "mlflow.db")
        connect(f"sqlite:///{path}").search_experiments()
        return MeasuredOverhead(time.perf_counter() - begun, path.stat().st_size)


def _write_report(config: SweepConfig, trace: Trace, iteration_s: float) -> MeasuredOverhead:
    from tune_tf.report import write_report as write
    from tune_tf.results import SweepResult, TrialResult

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "sweep.yaml").write_text(config.to_yaml())
        begun_s, metric = time.time(), trace.objective.metric
        lines: dict[int, list[dict[str, Any]]] = {trial.number: [] for trial in trace.trials}
        for event in trace.events:
            since_s = event.iteration * iteration_s
            # As in Tune's result.json.
            line = {
                metric: event.value,
                **{f"metric_{number}": event.value for number in range(_METRICS)},
                "training_iteration": event.iteration,
                "timestamp": int(begun_s + since_s),
                "time_total_s": since_s,
                "time_since_restore": since_s,
                "pid": 1,
                "hostname": "here",
            }
            lines[event.trial].append(line)
        trials = []
        for trial in trace.trials:
            reported = [line | {"config": dict(trial.config)} for line in lines[trial.number]]
            path = folder / f"trial_{trial.number:05d}"
            path.mkdir()
            (path / "result.json").write_text("".join(f"{json.dumps(it)}\n" for it in reported))
            iterations = reported[-1]["training_iteration"] if reported else 0
            trials.append(
                TrialResult(
                    trial_id=f"{trial.number:08d}",
                    number=trial.number,
                    config=trial.config,
                    outcome=Outcome.COMPLETED if iterations >= trace.max_t else Outcome.PRUNED,
                    iterations=iterations,
                    metrics={metric: reported[-1][metric]} if reported else {},
                )
            )
        result = SweepResult(folder.name, folder, config, folder, tuple(trials))
        begun = time.perf_counter()
        files = write(result, folder / "report")
        took = time.perf_counter() - begun
        return MeasuredOverhead(took, sum(path.stat().st_size for path in files.values()))
