"""A trial on the devices of one node."""

import logging
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ray import tune
from ray.tune.result import SHOULD_CHECKPOINT

from tune_tf.errors import WorkloadError
from tune_tf.events import TrialLog, log_path
from tune_tf.parallelism import Mirrored
from tune_tf.resources import TrialResources
from tune_tf.tracking.mlflow_internals import stop_autologging
from tune_tf.tracking.trial_run import enter_trial, leave_trial
from tune_tf.tracking.trial_tracking import TrialTracking
from tune_tf.trainables.epoch_result import epoch_result
from tune_tf.trainables.memory.elastic import grown
from tune_tf.trainables.memory.memory_saving import micro_batches_of
from tune_tf.trainables.memory.recycling import RECYCLE, Recycling
from tune_tf.trainables.trial_number import seed_of_trial
from tune_tf.training.peak_memory import peak_memory_result
from tune_tf.validation import Validation
from tune_tf.workload import Config, Workload

if TYPE_CHECKING:
    from tune_tf.training.core.loop import Loop
    from tune_tf.training.core.replicas import Replicas
    from tune_tf.training.devices import Devices
    from tune_tf.training.system_metrics import SystemMetrics

LoopKind = Literal["graph", "fit"]

_log = logging.getLogger(__name__)


class MirroredTrainable(tune.Trainable):
    """Trains one model on the devices of one node, an epoch an iteration.

    Made ready for ``tune.run`` by :func:`tune_tf.trainable`, which hands over what :meth:`setup`
    takes. An actor that is reused for another trial keeps its traced programs and its data.
    """

    def setup(
        self,
        config: Config,
        *,
        workload: Workload,
        parallelism: Mirrored,
        resources: TrialResources,
        loop: LoopKind = "graph",
        validation: Validation = Validation(),  # noqa: B008  frozen
        seed: int | None = None,
        checkpoint_interval_s: float | None = None,
        recycling: Recycling | None = None,
        tracking: TrialTracking | None = None,
        elastic: bool = False,
        data_id: str | None = None,
        log_folder: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Claim the devices of this process and begin the first trial.

        Args:
            config: The trial's values.
            workload: Its data and model.
            parallelism: How it is spread.
            resources: What it may use where no Ray cluster has reserved anything.
            loop: ``"graph"`` for epochs as one graph call, ``"fit"`` for ``keras.Model.fit``.
            validation: When validation rows are evaluated.
            seed: The sweep's seed; None draws one from the trial's id.
            checkpoint_interval_s: Seconds of training after which an iteration asks Tune for a
                checkpoint; None leaves it to Tune's ``CheckpointConfig``.
            recycling: When this process has traced too much to serve another trial.
            tracking: Where the trial's MLflow run is, for :func:`tune_tf.mlflow_run`; None if it
                has none.
            elastic: Whether to train with more replicas where Tune has reserved more than
                ``resources``.
            data_id: Names the workload's data, for the trials of a node to share them; None if
                this one loads them by itself.
            log_folder: The sweep's folder, for the logs of its trials; None for no log.
            clock: Seconds that only grow.
        """
        self._log_folder = log_folder
        self._log = TrialLog()
        self._log.begin(log_path(log_folder, self.trial_name))
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        import keras

        from tune_tf.data import LoadCache, SharedLoads, rows_of
        from tune_tf.training.devices import claim_devices  # TensorFlow loads in the trial only
        from tune_tf.training.input.device_rows import place_rows

        floatx = keras.config.floatx()
        loads = SharedLoads(workload, data_id, floatx)

        def load(config: Config) -> Any:
            data = loads.load(config)
            return (
                data if loop == "fit" else place_rows(rows_of(data, floatx=floatx), self._replicas)
            )

        pieces = micro_batches_of(self.trial_resources, parallelism)
        self._saving = pieces > parallelism.micro_batches  # after it ran out of memory
        parallelism = replace(parallelism, micro_batches=pieces)
        self._micro_batches = pieces
        self._sweep_seed = seed
        self._checkpoint_interval_s = checkpoint_interval_s
        self._recycling = recycling or Recycling()
        self._clock = clock
        self._tracking = tracking
        reserved = self._reserved() or resources
        self._system_metrics = make_system_metrics(tracking, reserved)

        def begin(devices: "Devices", spread: Mirrored) -> None:
            self._replicas, self._loop = self._loop_on(devices, spread, workload, loop)
            if validation.asynchronous:
                self._loop = _validating_aside(self._loop, workload, self._replicas)
            self._data = LoadCache(load)
            self._start(config)

        spread = parallelism
        if elastic and loop == "graph":
            rows = workload.global_batch_size(config)
            spread = grown(parallelism, resources, reserved, batch_size=rows)
        devices = claim_devices(reserved, spread.num_devices)
        try:
            begin(devices, spread)
        except WorkloadError as error:
            if spread is parallelism:
                raise
            declared = parallelism.num_replicas
            _log.warning("keeping %d replica(s) on more devices: %s", declared, error)
            begin(devices.first(declared), parallelism)

    def step(self) -> dict[str, Any]:
        """Train and validate for one epoch; return its metrics."""
        enter_trial(self.trial_id, self._tracking)
        metrics = self._loop.epoch()
        result = epoch_result(
            metrics,
            iteration=self.iteration + 1,
            stop_training=self._loop.stop_training,
            devices=str(self._replicas.devices),
        )
        interval = self._checkpoint_interval_s
        if interval is not None and self._clock() - self._last_checkpoint >= interval:
            result[SHOULD_CHECKPOINT] = True
        if self._recycling.is_due(self._loop.num_programs):
            result[RECYCLE] = True
        result |= self._loop.performance | peak_memory_result()
        if self._system_metrics is not None:
            result |= self._system_metrics.sample()
        if self._saving:
            result["micro_batches"] = self._micro_batches
        return result

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Write everything needed to go on into a folder."""
        self._loop.state().write(Path(checkpoint_dir))
        self._last_checkpoint = self._clock()

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Go on from a folder that :meth:`save_checkpoint` wrote, on any number of replicas."""
        from tune_tf.training.core.checkpoint import Checkpoint

        self._loop.restore(Checkpoint.read(Path(checkpoint)))
        self._last_checkpoint = self._clock()

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Begin another trial in this process, with the numbers that a fresh one would give."""
        self._loop.finish()
        self._log.begin(log_path(self._log_folder, self.trial_name))
        self._start(new_config)
        return True

    def cleanup(self) -> None:
        """End the trial."""
        self._loop.finish()
        leave_trial()
        self._log.end()

    def _loop_on(
        self, devices: "Devices", spread: Any, workload: Workload, kind: LoopKind
    ) -> "tuple[Replicas, Loop]":
        """Return what the trials of this process train on, and how."""
        from tune_tf.training.core.fit_loop import FitLoop
        from tune_tf.training.core.loop import GraphLoop
        from tune_tf.training.core.replicas import Replicas

        replicas = Replicas(devices)
        if kind == "fit":
            return replicas, FitLoop(workload, replicas)
        return replicas, GraphLoop(workload, replicas, spread)

    def _start(self, config: Config) -> None:
        self._last_checkpoint = self._clock()
        enter_trial(self.trial_id, self._tracking, starting=True)
        self._stop_autologging()
        self._start_loop(config)
        self._stop_autologging()  # the workload's code may have switched it on
        if self._system_metrics is not None:
            self._system_metrics.begin()

    def _start_loop(self, config: Config) -> None:
        try:
            self._loop.start(config, self._data.get(config), self._seed())
        except WorkloadError as error:
            if not self._saving:
                raise
            raise MemoryError(f"it ran out of memory, and cannot do with less: {error}") from error

    def _stop_autologging(self) -> None:
        """Keep MLflow from making a second run of a trial that has one."""
        if self._tracking is not None:
            stop_autologging()

    def _reserved(self) -> TrialResources | None:
        """Return what Tune reserved for this actor; None where it is driven by hand."""
        if self.trial_resources is None:
            return None
        reserved = self.trial_resources.required_resources
        return TrialResources(cpus=max(1, int(reserved.get("CPU", 1))), gpus=reserved.get("GPU", 0))

    def _seed(self) -> int:
        return seed_of_trial(self._sweep_seed, self.trial_id, self.trial_name)


def _validating_aside(loop: "Loop", workload: Workload, replicas: "Replicas") -> "Loop":
    from tune_tf.training.core.async_validation import AsyncValidationLoop, Validator
    from tune_tf.training.core.loop import GraphLoop

    if not isinstance(loop, GraphLoop):
        raise TypeError(f"{type(loop).__name__} cannot run ahead of its validation")
    return AsyncValidationLoop(loop, Validator(workload, replicas))


def make_system_metrics(
    tracking: TrialTracking | None, resources: TrialResources
) -> "SystemMetrics | None":
    """Return what samples a trial's process, where the sweep asks for it."""
    if tracking is None or not tracking.system_metrics:
        return None
    from tune_tf.training.system_metrics import SystemMetrics, reserved_gpus

    return SystemMetrics(reserved_gpus() if resources.gpus else ())
