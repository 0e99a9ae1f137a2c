"""MLflow run that records the scaling of a workload."""

import time
from collections.abc import Mapping
from pathlib import Path

from tune_tf.estimate.scaling.candidates import Measurement
from tune_tf.estimate.scaling.scale import Scaling
from tune_tf.outcome import Outcome
from tune_tf.secrets import mask_secrets
from tune_tf.tracking.descriptions import DESCRIPTION_TAG
from tune_tf.tracking.names import MAX_TAG_LENGTH, mlflow_key, mlflow_params, truncate
from tune_tf.tracking.runs import SweepRuns, TrackedSweep, connect
from tune_tf.tracking.writing.run_update import PARENT, STOP_REASON_TAG, Report, RunUpdate

SCALE_TAG = "tune_tf.scale"
"""Tag that marks a scaling run, as opposed to a sweep or trial; holds the sweep's name."""


def record_scaling(
    scaling: Scaling,
    files: Mapping[str, Path],
    *,
    tracking_uri: str,
    experiment_name: str,
    run: str,
) -> str:
    """Write the MLflow run with files by artifact path, and return its id.

    The step of a metric is the number of devices, the batch size or the number of rows, so that
    MLflow plots the scaling curves.
    """
    now_ms = time.time_ns() // 1_000_000
    runs = SweepRuns(connect(tracking_uri), TrackedSweep(run, tracking_uri, experiment_name))
    sentences = "\n".join(f"- {each}" for each in scaling.advice.sentences)
    note = f"How {scaling.name} scales\n\n{sentences}\n\n```yaml\n{scaling.advice.settings}\n```"
    entry = RunUpdate(
        PARENT,
        round(scaling.started.timestamp() * 1000),
        name=run,
        params={name: mask_secrets(text) for name, text in mlflow_params(scaling.config).items()},
        tags={
            SCALE_TAG: scaling.name,
            "tune_tf.workload": scaling.workload,
            "tune_tf.machine": scaling.machine,
            "tune_tf.advised": scaling.advice.settings,
            STOP_REASON_TAG: Outcome.COMPLETED.value,
            DESCRIPTION_TAG: truncate(note, MAX_TAG_LENGTH),
        },
        reports=_reports(scaling.measurements, now_ms),
        files={name: str(path) for name, path in files.items()},
        status=Outcome.COMPLETED.mlflow,
        end_ms=now_ms,
    )
    runs.write(entry)
    return runs.run_ids[PARENT]


def _reports(measurements: tuple[Measurement, ...], now_ms: int) -> list[Report]:
    reference, *others = measurements
    good = [each for each in others if not each.error]
    families = dict.fromkeys(
        each.candidate.family for each in good if each.candidate.dimension == "devices"
    )
    found = [
        Report(number, now_ms, _metrics(f"devices/{family}", each), once=False)
        for family in families
        for number, each in [
            (1, reference),
            *(
                (each.candidate.num_devices, each)
                for each in good
                if each.candidate.dimension == "devices" and each.candidate.family == family
            ),
        ]
    ]
    for dimension in ("batch", "data"):
        for each in (reference, *good):
            if each is reference or each.candidate.dimension == dimension:
                step = each.batch_size if dimension == "batch" else each.num_rows
                found.append(Report(step, now_ms, _metrics(dimension, each), once=False))
    return found


def _metrics(prefix: str, measurement: Measurement) -> dict[str, float]:
    values = {
        "rows_per_s": measurement.rows_per_s,
        "speed_up": measurement.speed_up,
        "memory_bytes": measurement.memory_bytes,
        "gpu_memory_bytes": measurement.gpu_memory_bytes,
        "busy_cores": measurement.busy_cores,
        "input_share": measurement.input_share,
    }
    if prefix.startswith("devices"):
        values["efficiency"] = measurement.efficiency
    return {
        mlflow_key(f"{prefix}/{name}"): float(value)
        for name, value in values.items()
        if value is not None
    }
