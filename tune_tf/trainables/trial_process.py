"""Training of trials in a process: the trial's own actor or one of its workers.

TensorFlow is imported late, so that the actor of a trial in several processes does not load it.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from pickle import PickleBuffer
from typing import TYPE_CHECKING, Any

import numpy as np

from tune_tf.errors import WorkloadError
from tune_tf.record import TrialLog
from tune_tf.record.trial_log import FILES
from tune_tf.resources import TrialResources
from tune_tf.tracking.mlflow_internals import stop_autologging
from tune_tf.tracking.trial_run import enter_trial, leave_trial
from tune_tf.trainables.memory.recycling import is_recycling_due
from tune_tf.trainables.trial_settings import TrialSettings
from tune_tf.training.system_metrics import peak_memory_result
from tune_tf.workload import Config, Workload

if TYPE_CHECKING:
    from tune_tf.data import DataLoader
    from tune_tf.data.loading import Loaded
    from tune_tf.training.callbacks import CallbackContext
    from tune_tf.training.devices import Devices
    from tune_tf.training.fit_loop import FitLoop
    from tune_tf.training.frozen.frozen_outputs import FrozenOutputs
    from tune_tf.training.loop import GraphLoop
    from tune_tf.training.parameter_server.gradient_loop import GradientLoop
    from tune_tf.training.replicas.replicas import Replicas
    from tune_tf.training.system_metrics import SystemMetrics

    Loop = GraphLoop | FitLoop


@dataclass(frozen=True)
class TrialStart:
    """Start message of a trial; ``log`` is the log file of its processes, None for no log."""

    trial_id: str
    config: dict[str, Any]
    seed: int
    log: Path | None = None


@dataclass(frozen=True)
class EpochReport:
    """Report of a process after an epoch.

    Args:
        metrics: Metrics by Keras name, over the rows of all workers.
        stop_training: Whether a callback requested the end of the trial.
        recycle: Whether the process should serve no other trial.
        system_metrics: Load of the machine, peak memory and training speed, by result key.
        extra: Further results, by result key.
    """

    metrics: dict[str, Any]
    stop_training: bool
    recycle: bool
    system_metrics: dict[str, Any]
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def numbers(self) -> dict[str, Any]:
        """Metrics that are numbers, as Tune requires: not arrays by class."""
        return {name: each for name, each in self.metrics.items() if isinstance(each, int | float)}


_NUM_PLACED = 2
"""Data sets that a process keeps on its devices."""

_COPIED_BYTES = 2**20
"""Size up to which each trial has its own copy of an array of the workload, which it may change."""


@dataclass(frozen=True)
class PickledWorkload:
    """Pickled workload, of which each trial gets an object of its own.

    Large arrays are shared without a copy and are read-only.
    """

    content: bytes
    arrays: "tuple[np.ndarray[Any, Any], ...]" = ()

    @classmethod
    def of(cls, workload: Workload) -> "PickledWorkload":
        """Pickle a workload, by value if other nodes cannot import its class.

        Raises:
            WorkloadError: It cannot be pickled.
        """
        from ray import cloudpickle  # unlike pickle, it supports classes defined in a script

        arrays: list[np.ndarray[Any, Any]] = []

        def keep(buffer: PickleBuffer) -> bool:
            is_copied = buffer.raw().nbytes <= _COPIED_BYTES
            if not is_copied:
                arrays.append(np.frombuffer(buffer.raw(), np.uint8))
            return is_copied

        try:
            content = cloudpickle.dumps(workload, protocol=5, buffer_callback=keep)
        except Exception as error:
            raise WorkloadError(
                f"{type(workload).__name__} cannot be pickled ({type(error).__name__}: {error}), "
                "but each trial gets one of its own: create what cannot be pickled in load_data or "
                "build_model"
            ) from error
        return cls(content, tuple(arrays))

    def load(self, where: str) -> Workload:
        """Return a new workload; ``where`` names the process in messages."""
        from ray import cloudpickle

        buffers = [array.data.toreadonly() for array in self.arrays]
        try:
            workload: Workload = cloudpickle.loads(self.content, buffers=buffers)
        except Exception as error:
            raise WorkloadError(
                f"{where} cannot import the workload ({type(error).__name__}: {error}): its module "
                "and everything that it imports must be installed on every node, or sent there "
                "with Ray's runtime_env (working_dir, pip)"
            ) from error
        return workload


class TrialProcess:
    """Training of one trial after another in this process, on the devices that it has claimed."""

    devices: "Devices"

    def __str__(self) -> str:
        """Return the name of the process for messages."""
        return "the process of the trial"

    def __init__(self) -> None:
        self.log = TrialLog()
        self._discards_files = False  # of callbacks
        self._trial: TrialStart
        self._loop: Any
        self._loader: DataLoader
        self._place_data: Callable[[Any, Config], Any]
        self._placed: dict[str, Any] = {}  # the most recently used last
        self._system_metrics: SystemMetrics | None = None

    def claim(
        self,
        workload: PickledWorkload,
        settings: TrialSettings,
        resources: TrialResources,
        num_devices: int,
    ) -> None:
        """Claim the devices of this process for all of its trials."""
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        import keras

        from tune_tf.data import DataLoader
        from tune_tf.training.devices import claim_devices

        self._pickled, self._settings = workload, settings
        self._floatx = keras.config.floatx()
        self._loader = DataLoader(settings.data_id, self._floatx)
        if settings.tracking is not None and settings.tracking.system_metrics:
            from tune_tf.training.system_metrics import SystemMetrics, reserved_gpus

            self._system_metrics = SystemMetrics(reserved_gpus() if resources.gpus else ())
        self.devices = claim_devices(resources, num_devices)
        if settings.reproducible and resources.gpus:
            import tensorflow as tf

            # Kernels of GPUs add in any order; those of CPUs do not.
            tf.config.experimental.enable_op_determinism()

    def frozen_outputs(self, replicas: "Replicas") -> "FrozenOutputs | None":
        """Return where trials find the outputs of frozen layers, if they share them."""
        if not self._settings.share_frozen:
            return None
        from tune_tf.data.node_store import node_store
        from tune_tf.training.frozen.frozen_outputs import FrozenOutputs

        return FrozenOutputs(replicas, node_store())

    def serve(self, loop: "Loop | GradientLoop", replicas: "Replicas | None") -> None:
        """Train with a loop from now on; without replicas, hold no rows on a device."""
        self._loop, self._placed = loop, {}
        self._place_data = lambda data, config: self._place(data, config, replicas)

    def start(self, trial: TrialStart) -> None:
        """Begin a trial, after ending the previous one."""
        self._loop.finish()
        with self._beginning(trial):
            self._loop.callback_context = self._callback_context()
            loaded = self._load(trial)
            rows = self._rows_of(loaded, trial.config)
            self._loop.start(loaded.workload, trial.config, rows, trial.seed)

    def _load(self, trial: TrialStart) -> "Loaded":
        """Return the data and the workload of a trial; data sets follow from its seed."""
        from tune_tf.training.seeds import (
            derive_seed,
            seed_python_and_numpy,
            seeded_generators,
        )

        seed_python_and_numpy(derive_seed(trial.seed, 1))  # of layers that the workload keeps
        workload, around = self._new_workload(), partial(seeded_generators, trial.seed)
        return self._loader.load(workload, trial.config, around)

    def _new_workload(self) -> Workload:
        return self._pickled.load(str(self))

    def _rows_of(self, loaded: "Loaded", config: Config) -> Any:
        """Return data as the loop reads them, on the devices."""
        if loaded.key is None:
            return self._place_data(loaded.data, config)
        if loaded.key not in self._placed:
            self._placed[loaded.key] = self._place_data(loaded.data, config)
        self._placed[loaded.key] = placed = self._placed.pop(loaded.key)
        while len(self._placed) > _NUM_PLACED:
            del self._placed[next(iter(self._placed))]
        return placed

    def _place(self, data: Any, config: Config, replicas: "Replicas | None") -> Any:
        """Return data as the loop reads them."""
        from tune_tf.data import Rows, rows_of
        from tune_tf.training.input.device_rows import place_rows
        from tune_tf.training.seeds import seeded_generators

        if self._settings.loop == "fit":
            return data

        def load_anew(seed: int) -> Rows:
            with seeded_generators(seed):
                return rows_of(self._new_workload().load_data(dict(config)), floatx=self._floatx)

        rows = rows_of(data, floatx=self._floatx)
        return place_rows(rows, replicas, self._trial.seed, load_anew)

    def epoch(self) -> EpochReport:
        """Train and validate for one epoch, together with the other workers."""
        self._enter()
        return self._report(self._loop.epoch(), self._loop.num_programs, self._loop)

    def write_checkpoint(self, folder: Path) -> None:
        """Write the full training state into a folder."""
        self._loop.state().write(folder)

    def snapshot(self) -> Callable[[Path], None]:
        """Return a writer of the state that the metrics of the last epoch belong to."""
        return self._loop.epoch_state().write

    def read_checkpoint(self, folder: Path) -> None:
        """Restore the state from a checkpoint folder, with any number of replicas."""
        from tune_tf.training.checkpoint import Checkpoint

        self._loop.restore(Checkpoint.read(folder))

    def finish(self) -> None:
        """End the trial."""
        self._loop.finish()
        leave_trial()

    @contextlib.contextmanager
    def _beginning(self, trial: TrialStart) -> Iterator[None]:
        """Set up log, MLflow run and system metrics around the start of a trial."""
        self._trial = trial
        self.log.begin(trial.log)
        enter_trial(trial.trial_id, self._settings.tracking)
        self._stop_autologging()
        yield
        self._stop_autologging()  # the workload's code may have enabled it
        if self._system_metrics is not None:
            self._system_metrics.begin()

    def _callback_context(self, part: str = "") -> "CallbackContext":
        """Return the context of the callbacks of the trial, or of a part of it."""
        from tune_tf.training.callbacks import CallbackContext

        log = self._trial.log
        folder = None if log is None else log.parent / FILES / part
        return CallbackContext(self._settings.epochs, folder, self._discards_files)

    def _enter(self) -> None:
        enter_trial(self._trial.trial_id, self._settings.tracking)

    def _stop_autologging(self) -> None:
        """Prevent MLflow from creating a second run for a tracked trial."""
        if self._settings.tracking is not None:
            stop_autologging()

    def _report(
        self, metrics: dict[str, Any], num_programs: int, loop: "Loop | None" = None
    ) -> EpochReport:
        recycle = is_recycling_due(num_programs)
        load = {} if self._system_metrics is None else self._system_metrics.sample()
        load |= peak_memory_result()
        if loop is None:
            return EpochReport(metrics, stop_training=False, recycle=recycle, system_metrics=load)
        load |= loop.performance
        return EpochReport(metrics, loop.stop_training, recycle, load)
