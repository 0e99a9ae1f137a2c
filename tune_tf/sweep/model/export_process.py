"""Separate process that saves a sweep's best model in MLflow's format.

TensorFlow takes seconds to load, and the driver never loads it. The process starts shortly before
the expected end of the sweep, so that the end need not wait for it.
"""

import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import ray
from ray import tune

from tune_tf.remote_storage import CheckpointLocation
from tune_tf.sweep.model.export_actor import ExportActor
from tune_tf.workload import Config, Workload

_EARLY_S = 20.0  # TensorFlow and MLflow load in 5 s on an idle machine, longer on a busy one


class ModelExportProcess:
    """Context manager of a process that saves models in MLflow's format.

    The process starts when needed, on the connected Ray cluster.
    """

    def __init__(self) -> None:
        self._actor: Any = None

    def __enter__(self) -> Self:
        """Return self."""
        return self

    def __exit__(self, *error: object) -> None:
        """End the process if it was started."""
        if self._actor is not None:
            ray.kill(self._actor)
            self._actor = None

    def start(self) -> None:
        """Start the process, unless it is running, without waiting for it."""
        if self._actor is None:
            # Reserves no CPU, so it neither waits for trials nor delays them.
            self._actor = ray.remote(num_cpus=0, max_restarts=0)(ExportActor).remote()

    def write(
        self,
        workload: Workload,
        config: Config,
        checkpoint: CheckpointLocation,
        path: Path,
        metadata: Mapping[str, Any],
    ) -> Path:
        """Save the model of a checkpoint, replacing the folder at ``path``, which is returned.

        MLflow keeps ``metadata``, JSON data about the model's origin, in the folder.
        """
        for partial in path.parent.glob(f".{path.stem}.*.partial"):  # of a killed process
            shutil.rmtree(partial, ignore_errors=True)
        self.start()
        ray.get(self._actor.write.remote(workload, config, checkpoint, path, dict(metadata)))
        return path

    def evaluate(
        self, workload: Workload, config: Config, checkpoint: CheckpointLocation
    ) -> dict[str, float]:
        """Return the metrics of a checkpoint's model on ``Data.test``, such as ``test_loss``.

        Empty if there are no test rows.
        """
        self.start()
        metrics: dict[str, float] = ray.get(
            self._actor.evaluate.remote(workload, config, checkpoint)
        )
        return metrics


class ExportPrestart(tune.Callback):
    """Tune callback that starts the export process shortly before a sweep's expected end."""

    def __init__(self, export_process: ModelExportProcess, num_samples: int) -> None:
        self._export_process = export_process
        self._num_samples = num_samples
        self._num_ended = 0
        self._begun_s: float | None = None

    def on_trial_start(self, **info: Any) -> None:
        """Note when the first trial starts: the first processes take their time only once."""
        self._begun_s = time.monotonic() if self._begun_s is None else self._begun_s

    def on_trial_complete(self, **info: Any) -> None:
        """Start the process if the remaining trials are expected to take no longer than it."""
        self._num_ended += 1
        elapsed_s = time.monotonic() - (self._begun_s or 0.0)
        num_left = self._num_samples - self._num_ended
        if elapsed_s / self._num_ended * num_left <= _EARLY_S:
            self._export_process.start()
