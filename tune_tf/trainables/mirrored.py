"""Trainable for one model on the devices of one node."""

import logging
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ray import tune
from ray.tune.result import SHOULD_CHECKPOINT

from tune_tf.errors import WorkloadError
from tune_tf.events import TrialLog, log_path
from tune_tf.resources import TrialResources
from tune_tf.tracking.mlflow_internals import stop_autologging
from tune_tf.tracking.trial_run import enter_trial, leave_trial
from tune_tf.tracking.trial_tracking import TrialTracking
from tune_tf.trainables.epoch_result import epoch_result
from tune_tf.trainables.memory.elastic import grown
from tune_tf.trainables.memory.memory_saving import micro_batches_of
from tune_tf.trainables.memory.recycling import RECYCLE
from tune_tf.trainables.trial_number import seed_of_trial
from tune_tf.trainables.trial_settings import TrialSettings
from tune_tf.training.peak_memory import peak_memory_result
from tune_tf.workload import Config, Workload

if TYPE_CHECKING:
    from tune_tf.training.core.async_validation import AsyncValidationLoop
    from tune_tf.training.core.fit_loop import FitLoop
    from tune_tf.training.core.loop import GraphLoop
    from tune_tf.training.core.replicas import Replicas
    from tune_tf.training.devices import Devices
    from tune_tf.training.system_metrics import SystemMetrics

    Loop = GraphLoop | FitLoop | AsyncValidationLoop

_log = logging.getLogger(__name__)


class MirroredTrainable(tune.Trainable):
    """Trainable for one model on the devices of one node, one epoch per iteration.

    :func:`tune_tf.trainable` supplies the arguments of :meth:`setup`. A reused actor keeps its
    traced programs and its data.
    """

    def setup(
        self,
        config: Config,
        *,
        workload: Workload,
        settings: TrialSettings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Claim the devices of this process and begin the first trial."""
        self._settings = settings
        self._workload = workload
        self._clock = clock
        self._log = TrialLog()
        self._log.begin(log_path(settings.log_folder, self.trial_name))
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        import keras

        from tune_tf.data import SharedLoads, rows_of
        from tune_tf.training.devices import claim_devices  # TensorFlow loads in the trial only
        from tune_tf.training.input.device_rows import place_rows

        floatx = keras.config.floatx()
        loads = SharedLoads(workload, settings.data_id, floatx)

        def load(config: Config) -> Any:
            data = loads.load(config)
            if settings.loop == "fit":
                return data
            return place_rows(rows_of(data, floatx=floatx), self._replicas)

        self._load = load
        declared = settings.parallelism
        self._micro_batches = micro_batches_of(self.trial_resources, declared)
        self._saving = self._micro_batches > declared.micro_batches  # after it ran out of memory
        declared = replace(declared, micro_batches=self._micro_batches)
        reserved = self._reserved() or settings.resources
        self._system_metrics = make_system_metrics(settings.tracking, reserved)
        parallelism = declared
        if settings.elastic and settings.loop == "graph":
            rows = workload.global_batch_size(config)
            parallelism = grown(declared, settings.resources, reserved, batch_size=rows)
        devices = claim_devices(reserved, parallelism.num_devices)
        try:
            self._begin(config, devices, parallelism)
        except WorkloadError as error:
            if parallelism is declared:
                raise
            number = declared.num_replicas
            _log.warning("keeping %d replica(s) on more devices: %s", number, error)
            self._begin(config, devices.first(number), declared)

    def _begin(self, config: Config, devices: "Devices", parallelism: Any) -> None:
        from tune_tf.data import LoadCache

        self._replicas, self._loop = self._loop_on(devices, parallelism)
        if self._settings.validation.asynchronous:
            self._loop = _validating_aside(self._loop, self._workload, self._replicas)
        self._data = LoadCache(self._load)
        self._start(config)

    def step(self) -> dict[str, Any]:
        """Train and validate for one epoch; return its metrics."""
        enter_trial(self.trial_id, self._settings.tracking)
        metrics = self._loop.epoch()
        result = epoch_result(
            metrics,
            iteration=self.iteration + 1,
            stop_training=self._loop.stop_training,
            devices=str(self._replicas.devices),
        )
        interval = self._settings.checkpoint_interval_s
        if interval is not None and self._clock() - self._last_checkpoint >= interval:
            result[SHOULD_CHECKPOINT] = True
        if self._settings.recycling.is_due(self._loop.num_programs):
            result[RECYCLE] = True
        result |= self._loop.performance | peak_memory_result()
        if self._system_metrics is not None:
            result |= self._system_metrics.sample()
        if self._saving:
            result["micro_batches"] = self._micro_batches
        return result

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Write the full training state into a folder."""
        self._loop.state().write(Path(checkpoint_dir))
        self._last_checkpoint = self._clock()

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Restore the state from a checkpoint folder, with any number of replicas."""
        from tune_tf.training.core.checkpoint import Checkpoint

        self._loop.restore(Checkpoint.read(Path(checkpoint)))
        self._last_checkpoint = self._clock()

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Begin another trial in this process, with the same numbers as in a fresh one."""
        self._loop.finish()
        self._log.begin(log_path(self._settings.log_folder, self.trial_name))
        self._start(new_config)
        return True

    def cleanup(self) -> None:
        """End the trial."""
        self._loop.finish()
        leave_trial()
        self._log.end()

    def _loop_on(self, devices: "Devices", parallelism: Any) -> "tuple[Replicas, Loop]":
        """Return the replicas and the loop for the trials of this process."""
        from tune_tf.training.core.fit_loop import FitLoop
        from tune_tf.training.core.loop import GraphLoop
        from tune_tf.training.core.replicas import Replicas

        replicas = Replicas(devices)
        if self._settings.loop == "fit":
            return replicas, FitLoop(self._workload, replicas)
        return replicas, GraphLoop(self._workload, replicas, parallelism)

    def _start(self, config: Config) -> None:
        self._last_checkpoint = self._clock()
        enter_trial(self.trial_id, self._settings.tracking, starting=True)
        self._stop_autologging()
        self._start_loop(config)
        self._stop_autologging()  # the workload's code may have enabled it
        if self._system_metrics is not None:
            self._system_metrics.begin()

    def _start_loop(self, config: Config) -> None:
        try:
            self._loop.start(config, self._data.get(config), self._seed())
        except WorkloadError as error:
            if not self._saving:
                raise
            raise MemoryError(f"it ran out of memory and cannot run with less: {error}") from error

    def _stop_autologging(self) -> None:
        """Prevent MLflow from creating a second run for a tracked trial."""
        if self._settings.tracking is not None:
            stop_autologging()

    def _reserved(self) -> TrialResources | None:
        """Return the resources that Tune reserved for this actor; None without Tune."""
        if self.trial_resources is None:
            return None
        reserved = self.trial_resources.required_resources
        return TrialResources(cpus=max(1, int(reserved.get("CPU", 1))), gpus=reserved.get("GPU", 0))

    def _seed(self) -> int:
        return seed_of_trial(self._settings.seed, self.trial_id, self.trial_name)


def _validating_aside(loop: "Loop", workload: Workload, replicas: "Replicas") -> "Loop":
    from tune_tf.training.core.async_validation import AsyncValidationLoop, Validator
    from tune_tf.training.core.loop import GraphLoop

    if not isinstance(loop, GraphLoop):
        raise TypeError(f"{type(loop).__name__} cannot run ahead of its validation")
    return AsyncValidationLoop(loop, Validator(workload, replicas))


def make_system_metrics(
    tracking: TrialTracking | None, resources: TrialResources
) -> "SystemMetrics | None":
    """Return a sampler of this process' system metrics, or None if the sweep records none."""
    if tracking is None or not tracking.system_metrics:
        return None
    from tune_tf.training.system_metrics import SystemMetrics, reserved_gpus

    return SystemMetrics(reserved_gpus() if resources.gpus else ())
