"""Report of the scaling of a workload: table, numbers, profile and MLflow run."""

import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tune_tf.atomic_files import write_atomically
from tune_tf.config import SweepConfig
from tune_tf.estimate.scaling.candidates import Measurement, scaling_curves
from tune_tf.estimate.scaling.scale import Scaling
from tune_tf.outcome import Outcome
from tune_tf.secrets import mask_secrets
from tune_tf.sweep.plan import checked_tracking_uri
from tune_tf.tracking.names import MAX_TAG_LENGTH, mlflow_key, mlflow_params, truncate
from tune_tf.tracking.runs import SweepRuns, TrackedSweep
from tune_tf.tracking.store import connect
from tune_tf.tracking.writing.run_update import (
    DESCRIPTION_TAG,
    PARENT,
    STOP_REASON_TAG,
    Report,
    RunUpdate,
)

_log = logging.getLogger(__name__)


SCALE_TAG = "tune_tf.scale"
"""Tag that marks a scaling run, as opposed to a sweep or trial; holds the sweep's name."""


OPTIONAL_HEADERS = ("cores busy", "start")
"""Columns to leave out on a narrow terminal."""

_TITLES = {"devices": "more devices", "batch": "other batch sizes", "data": "less data"}
HEADERS = (
    "",
    "devices",
    "batch",
    "rows",
    "rows/s",
    "speed-up",
    "efficiency",
    "cores busy",
    "memory",
    "input",
    "start",
)


@dataclass(frozen=True)
class ScalingFiles:
    """Folder of the scaling files, and id of the MLflow run, None without one."""

    folder: Path
    mlflow_run_id: str | None


def write_scaling(scaling: Scaling, config: SweepConfig) -> ScalingFiles:
    """Write scaling files below ``storage_path``, and an MLflow run in the sweep's experiment.

    If MLflow's store does not answer, only the run is missing.
    """
    from mlflow.exceptions import MlflowException  # slow to import, needed only here

    name = f"{scaling.name}-scale-{scaling.started:%Y%m%d-%H%M%S}"
    folder = config.sweeps_path / name
    files = _write_files(scaling, folder)
    tracking_uri = checked_tracking_uri(config)
    run_id: str | None = None
    if tracking_uri is not None and config.mlflow is not None:
        run = TrackedSweep(name, tracking_uri, config.mlflow.experiment_name)
        try:
            run_id = _write_run(scaling, files, run)
        except (MlflowException, OSError) as error:
            _log.warning(
                "could not record the run in MLflow (%s); the files are in %s", error, folder
            )
    return ScalingFiles(folder, run_id)


def _write_files(scaling: Scaling, folder: Path) -> dict[str, Path]:
    """Write numbers and profile; return their paths, by path within the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(
        folder / "scale.json", json.dumps(scaling.to_dict(), indent=2, default=str) + "\n"
    )
    files = {"scale.json": folder / "scale.json"}
    for name, content in scaling.profile.items():
        path = folder / "profile" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        files[f"profile/{name}"] = path
    return files


def _write_run(scaling: Scaling, files: Mapping[str, Path], run: TrackedSweep) -> str:
    """Write the MLflow run with files by artifact path, and return its id.

    The step of a metric is the number of devices, the batch size or the number of rows, so that
    MLflow plots the scaling curves.
    """
    now_ms = time.time_ns() // 1_000_000
    runs = SweepRuns(connect(run.tracking_uri), run)
    sentences = "\n".join(f"- {each}" for each in scaling.advice.sentences)
    text = f"How {scaling.name} scales\n\n{sentences}\n\n```yaml\n{scaling.advice.settings}\n```"
    update = RunUpdate(
        PARENT,
        round(scaling.started.timestamp() * 1000),
        name=run.sweep_id,
        params={name: mask_secrets(text) for name, text in mlflow_params(scaling.config).items()},
        tags={
            SCALE_TAG: scaling.name,
            "tune_tf.workload": scaling.workload,
            "tune_tf.machine": scaling.machine,
            "tune_tf.advised": scaling.advice.settings,
            STOP_REASON_TAG: Outcome.COMPLETED.value,
            DESCRIPTION_TAG: truncate(text, MAX_TAG_LENGTH),
        },
        reports=[
            Report(each.position(dimension), now_ms, _metrics(dimension, family, each), once=False)
            for dimension, families in scaling_curves(scaling.measurements).items()
            for family, members in families.items()
            for each in members
        ],
        files={name: str(path) for name, path in files.items()},
        status=Outcome.COMPLETED.mlflow,
        end_ms=now_ms,
    )
    runs.write(update)
    return runs.run_ids[PARENT]


def _metrics(dimension: str, family: str, measurement: Measurement) -> dict[str, float]:
    values = {
        "rows_per_s": measurement.rows_per_s,
        "speed_up": measurement.speed_up,
        "memory_bytes": measurement.memory_bytes,
        "gpu_memory_bytes": measurement.gpu_memory_bytes,
        "busy_cores": measurement.busy_cores,
        "input_share": measurement.input_share,
        "efficiency": measurement.efficiency if dimension == "devices" else None,
    }
    prefix = f"{dimension}/{family}" if family else dimension
    return {
        mlflow_key(f"{prefix}/{name}"): float(value)
        for name, value in values.items()
        if value is not None
    }


@dataclass(frozen=True)
class TableRow:
    """Row of the scaling table: a cell per header, or an ``error`` instead of numbers."""

    cells: tuple[str, ...]
    error: str = ""
    is_reference: bool = False


def table_of(measurements: Sequence[Measurement]) -> Iterator[tuple[str, list[TableRow]]]:
    """Yield the title and the rows of each group; the first measurement is the reference."""
    for dimension, title in _TITLES.items():
        rows = [
            _row(each, is_reference=each is measurements[0])
            for each in measurements
            if each.candidate.dimension == dimension
        ]
        if rows:
            yield title, rows


def _row(measurement: Measurement, *, is_reference: bool) -> TableRow:
    candidate = measurement.candidate
    name, devices = candidate.label, str(candidate.num_devices)
    if measurement.error:
        return TableRow((name, devices, *[""] * (len(HEADERS) - 2)), measurement.error)
    efficiency = f"{measurement.efficiency:.0%}" if candidate.dimension == "devices" else ""
    share = measurement.input_share
    cores = measurement.busy_cores
    cells = (
        name,
        devices,
        f"{measurement.batch_size:,}",
        f"{measurement.num_rows:,}",
        f"{measurement.rows_per_s:,.0f}",
        "1" if is_reference else f"{measurement.speed_up:.2f} ±{measurement.speed_up_spread:.2f}",
        efficiency,
        "-" if cores is None else f"{cores:.1f}",
        _memory_text(measurement),
        "-" if share is None else f"{share:.0%}",
        f"{measurement.start_s:.0f} s",
    )
    return TableRow(cells, is_reference=is_reference)


def _memory_text(measurement: Measurement) -> str:
    host, gpu = measurement.memory_bytes, measurement.gpu_memory_bytes
    text = "-" if host is None else f"{host / 1e9:.1f} GB"
    return text if gpu is None else f"{text}, GPU {gpu / 1e9:.1f} GB"
