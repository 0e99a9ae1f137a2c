"""Process that trains one scaling candidate."""

import contextlib
import importlib
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import ray
from ray import tune
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from tune_tf.errors import TuneTfError, UnavailableResourcesError

_ROOM_S = 60.0

TrainableClass = type[tune.Trainable]


class ProbeActor:
    """Actor that drives a Trainable as Tune would."""

    def __init__(self) -> None:
        self._trainable: tune.Trainable | None = None

    def start(self, made: TrainableClass, config: dict[str, Any]) -> None:
        """Start a trial and train its first epoch, which includes tracing."""
        self._trainable = made(config=config)
        self._trainable.train()

    def round(self, seconds: float) -> tuple[int, float]:
        """Train whole epochs until the time is over; return their number and seconds."""
        if self._trainable is None:
            raise RuntimeError("no trial was started")
        return _epochs(self._trainable, seconds)

    def epoch_of(self, made: TrainableClass, config: dict[str, Any], seconds: float) -> float:
        """Return the seconds per epoch of another trial on the same devices, after tracing."""
        trainable = made(config=config)
        trainable.train()
        epochs, took = _epochs(trainable, seconds)
        trainable.stop()
        return took / epochs

    def profile(self, made: TrainableClass, config: dict[str, Any]) -> dict[str, bytes]:
        """Return the files of a TensorFlow profile of an epoch, by path within a log folder."""
        import tensorflow as tf  # only this process loads it

        trainable = made(config=config)
        trainable.train()  # excludes tracing from the profile
        with tempfile.TemporaryDirectory() as folder:
            tf.profiler.experimental.start(folder)
            try:
                trainable.train()
            finally:
                tf.profiler.experimental.stop()
            trainable.stop()
            return {
                str(path.relative_to(folder)): path.read_bytes()
                for path in Path(folder).rglob("*")
                if path.is_file()
            }

    def stop(self) -> None:
        """Stop the trial."""
        if self._trainable is not None:
            self._trainable.stop()


class ScalingProbe:
    """Cluster process with the resources of a candidate, including the processes it starts.

    The process runs the class ``actor``, which needs a method ``stop``, with ``arguments``. The
    Trainable class ``made`` defines the resources.

    Raises:
        UnavailableResourcesError: The cluster does not have the resources within a minute.
    """

    def __init__(
        self,
        made: TrainableClass,
        config: dict[str, Any],
        actor: type = ProbeActor,
        arguments: Sequence[Any] = (),
    ) -> None:
        self._config = config
        request = made.default_resource_request(config)
        self._group = ray.util.placement_group(request.bundles, strategy=request.strategy)
        if not self._group.wait(_ROOM_S):
            ray.util.remove_placement_group(self._group)
            raise UnavailableResourcesError(
                f"the Ray cluster had no capacity for {request.bundles} within {_ROOM_S:g} s: "
                "stop what else runs there"
            )
        head = {} if request.head_bundle_is_empty else request.bundles[0]
        self._actor: Any = (
            ray.remote(actor)
            .options(
                num_cpus=head.get("CPU", 0),
                num_gpus=head.get("GPU", 0),
                scheduling_strategy=PlacementGroupSchedulingStrategy(
                    self._group, 0 if head else -1, placement_group_capture_child_tasks=True
                ),
            )
            .remote(*arguments)
        )

    def start(self, made: TrainableClass) -> None:
        """Start a trial and train its first epoch."""
        self._ask("start", made, self._config)

    def round(self, seconds: float) -> tuple[int, float]:
        """Train whole epochs until the time is over; return their number and seconds."""
        took: tuple[int, float] = self._ask("round", seconds)
        return took

    def epoch_of(self, made: TrainableClass, seconds: float) -> float:
        """Return the seconds per epoch of another trial in the same process."""
        return float(self._ask("epoch_of", made, self._config, seconds))

    def profile(self, made: TrainableClass) -> dict[str, bytes]:
        """Return the files of a TensorFlow profile of an epoch of another trial."""
        files: dict[str, bytes] = self._ask("profile", made, self._config)
        return files

    def asked(self, method: str, *arguments: Any) -> Any:
        """Call a method of the process without waiting; return Ray's object reference."""
        return getattr(self._actor, method).remote(*arguments)

    def end(self) -> None:
        """Stop all processes and release their resources."""
        with contextlib.suppress(Exception):  # the actor may already be dead
            ray.get(self._actor.stop.remote(), timeout=15)
        ray.kill(self._actor)
        ray.util.remove_placement_group(self._group)

    def _ask(self, method: str, *arguments: Any) -> Any:
        try:
            return ray.get(self.asked(method, *arguments))
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, TuneTfError):
                raise error.cause from None
            raise


def _epochs(trainable: tune.Trainable, seconds: float) -> tuple[int, float]:
    begun = time.perf_counter()
    epochs = 0
    while (took := time.perf_counter() - begun) < seconds or not epochs:
        trainable.train()
        epochs += 1
    return epochs, took


def cpu_seconds(process_id: int) -> float:
    """Return the CPU seconds that a process of this machine has used; 0 if it has ended."""
    with contextlib.suppress(psutil.Error):
        times = psutil.Process(process_id).cpu_times()
        return float(times.user + times.system)
    return 0.0


def machine_cpu_seconds() -> float:
    """Return the CPU seconds that all processes of this machine have used."""
    times = psutil.cpu_times()
    return float(times.user + times.system)


def gpu_memory_bytes(process_ids: set[int], nvml: Any = None) -> int | None:
    """Return the GPU memory of processes of this machine; None if unknown.

    TensorFlow never releases GPU memory, so this is also the peak. ``nvml`` replaces ``pynvml``.
    """
    if nvml is None:
        try:
            nvml = importlib.import_module("pynvml")
        except ImportError:  # optional, for NVIDIA GPUs only
            return None
    try:
        nvml.nvmlInit()
        handles = map(nvml.nvmlDeviceGetHandleByIndex, range(nvml.nvmlDeviceGetCount()))
        running = [
            it for handle in handles for it in nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        ]
    except nvml.NVMLError:
        return None
    taken = [it.usedGpuMemory or 0 for it in running if it.pid in process_ids]
    return sum(taken) if taken else None
