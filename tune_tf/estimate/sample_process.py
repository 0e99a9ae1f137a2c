"""Cluster process that runs trials on a sample of a workload, and reports what they take."""

import contextlib
import importlib
import shutil
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import ray
from ray import tune
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from tune_tf.errors import TuneTfError, UnavailableResourcesError
from tune_tf.estimate.workload_sample import BUILDS_MODEL, read_process_counts
from tune_tf.result_keys import FROZEN_LAYERS, STALENESS_MAX, STALENESS_MEAN
from tune_tf.training.system_metrics import peak_memory_bytes

ProgressCallback = Callable[[str, float], None]
"""Called with a description of the current step and the share done, 0 to 1."""

TrainableClass = type[tune.Trainable]

_CAPACITY_WAIT_S = 60.0


@dataclass(frozen=True)
class EpochTimings:
    """Seconds of consecutive epochs of a trial.

    ``cpu_s`` and ``other_cpu_s`` are CPU seconds of its and all other processes on the node;
    ``staleness`` is the mean and the largest of each epoch of asynchronous workers;
    ``frozen_layers`` is what the last epoch reported of those.
    """

    epochs_s: tuple[float, ...]
    cpu_s: float
    other_cpu_s: float
    staleness: tuple[tuple[float, int], ...] = ()
    frozen_layers: str = ""


@dataclass(frozen=True)
class TrialUsage:
    """Peak memory and training rows of a trial's processes.

    ``gpu_bytes`` is None without GPUs, the numbers of rows are 0 if unknown. ``left_out_bytes`` are
    those of the data that a real trial holds but the sample omits; ``validation_rows`` are those
    of a real trial.
    """

    host_bytes: int
    gpu_bytes: int | None
    num_rows: int = 0
    total_rows: int = 0
    validation_rows: int = 0
    left_out_bytes: int = 0


class TrialActor:
    """Ray actor that drives Trainables step by step, one trial after another, as Tune would.

    Its processes write their counts to the folder ``counts_folder`` of this node.
    """

    def __init__(self, counts_folder: str) -> None:
        self._counts_folder = counts_folder
        self._trainable: Any = None
        Path(counts_folder).mkdir(parents=True, exist_ok=True)

    def begin(self, trainable_class: TrainableClass, config: dict[str, Any]) -> float:
        """Start a trial, in the Trainable of the last one if any; return the seconds it took."""
        start = time.perf_counter()
        if self._trainable is None:
            self._trainable = trainable_class(config=config)
        else:
            self._trainable.reset_config(config)
        return time.perf_counter() - start

    def train(self, seconds: float = 0.0) -> EpochTimings:
        """Train whole epochs, at least one, until the time is over."""
        trial_before_s, machine_before_s = self._cpu_seconds(), _machine_cpu_seconds()
        epochs_s, staleness, frozen_layers = _train(self._trainable, seconds)
        cpu_s = self._cpu_seconds() - trial_before_s
        other_cpu_s = max(0.0, _machine_cpu_seconds() - machine_before_s - cpu_s)
        return EpochTimings(epochs_s, cpu_s, other_cpu_s, staleness, frozen_layers)

    def save(self) -> tuple[float, int]:
        """Save a checkpoint; return the seconds it took, and its bytes."""
        start = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            self._trainable.save_checkpoint(folder)
            save_s = time.perf_counter() - start
            files = (path for path in Path(folder).rglob("*") if path.is_file())
            return save_s, sum(path.stat().st_size for path in files)

    def usage(self) -> TrialUsage:
        """Return memory and rows of the trial's processes on this node."""
        process_ids = self._process_ids()
        peaks = (peak_memory_bytes(process_id) for process_id in process_ids)
        counts: dict[str, int] = {}
        for each in read_process_counts(self._counts_folder).values():
            counts |= each
        counts.pop(BUILDS_MODEL, None)
        return TrialUsage(sum(filter(None, peaks)), _gpu_memory_bytes(process_ids), **counts)

    def time_other(
        self, trainable_class: TrainableClass, config: dict[str, Any], seconds: float
    ) -> float:
        """Return the seconds per epoch of another trial on the same devices, after tracing."""
        trainable = trainable_class(config=config)
        trainable.train()
        epochs_s, *_ = _train(trainable, seconds)
        trainable.stop()
        return sum(epochs_s) / len(epochs_s)

    def profile(self, trainable_class: TrainableClass, config: dict[str, Any]) -> dict[str, bytes]:
        """Return the files of a TensorFlow profile of an epoch, by path within a log folder."""
        import tensorflow as tf  # only this process loads it

        trainable = trainable_class(config=config)
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
        """Stop the trial and delete the counts."""
        try:
            if self._trainable is not None:
                self._trainable.stop()
        finally:
            shutil.rmtree(self._counts_folder, ignore_errors=True)

    def _process_ids(self) -> set[int]:
        counts = read_process_counts(self._counts_folder)
        return {process_id for process_id, each in counts.items() if BUILDS_MODEL in each}

    def _cpu_seconds(self) -> float:
        return sum(map(_process_cpu_seconds, self._process_ids()))


class SampleProcess:
    """Cluster process of a :class:`TrialActor`, with resources for all processes of a trial.

    ``trainable_class`` defines the resources; ``counts_folder`` is from
    :func:`new_counts_folder`.

    Raises:
        UnavailableResourcesError: The cluster does not have the resources within a minute.
    """

    def __init__(
        self, trainable_class: TrainableClass, config: dict[str, Any], counts_folder: str
    ) -> None:
        self.trainable_class = trainable_class
        self._counts_folder = counts_folder
        request = trainable_class.default_resource_request(config)
        self._group = ray.util.placement_group(request.bundles, strategy=request.strategy)
        if not self._group.wait(_CAPACITY_WAIT_S):
            ray.util.remove_placement_group(self._group)
            raise UnavailableResourcesError(
                f"the Ray cluster had no capacity for {request.bundles} within "
                f"{_CAPACITY_WAIT_S:g} s: stop what else runs there"
            )
        head = {} if request.head_bundle_is_empty else request.bundles[0]
        self._actor: Any = (
            ray.remote(TrialActor)
            .options(
                num_cpus=head.get("CPU", 0),
                num_gpus=head.get("GPU", 0),
                scheduling_strategy=PlacementGroupSchedulingStrategy(
                    self._group, 0 if head else -1, placement_group_capture_child_tasks=True
                ),
            )
            .remote(counts_folder)
        )

    def ask(self, method: str, *arguments: Any) -> Any:
        """Call a method of the actor without waiting; return Ray's object reference."""
        return getattr(self._actor, method).remote(*arguments)

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the actor; raise an error of this package as it was raised there."""
        try:
            return ray.get(self.ask(method, *arguments))
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, TuneTfError):
                raise error.cause from None
            raise

    def end(self) -> None:
        """Stop all processes and release their resources."""
        with contextlib.suppress(Exception):  # the actor may already be dead
            ray.get(self._actor.stop.remote(), timeout=15)
        ray.kill(self._actor)
        ray.util.remove_placement_group(self._group)
        shutil.rmtree(self._counts_folder, ignore_errors=True)  # left by an actor that died


def new_counts_folder() -> str:
    """Return a new path for the folder of the counts of a trial's processes."""
    return str(Path(tempfile.gettempdir(), f"tune-tf-counts-{uuid.uuid4().hex}"))


def _train(
    trainable: tune.Trainable, seconds: float
) -> tuple[tuple[float, ...], tuple[tuple[float, int], ...], str]:
    """Return the seconds of each epoch, the staleness of asynchronous ones, and frozen layers."""
    epochs_s: list[float] = []
    staleness: list[tuple[float, int]] = []
    while not epochs_s or sum(epochs_s) < seconds:
        start = time.perf_counter()
        result = trainable.train()
        epochs_s.append(time.perf_counter() - start)
        if STALENESS_MEAN in result:
            staleness.append((result[STALENESS_MEAN], result[STALENESS_MAX]))
    return tuple(epochs_s), tuple(staleness), result.get(FROZEN_LAYERS, "")


def robust_spread(values: Sequence[float]) -> float:
    """Return 1.5 times the median absolute deviation, about the standard deviation of a normal."""
    median = statistics.median(values)
    return 1.5 * statistics.median(abs(value - median) for value in values)


def _process_cpu_seconds(process_id: int) -> float:
    """Return the CPU seconds that a process of this machine has used; 0 if it has ended."""
    with contextlib.suppress(psutil.Error):
        times = psutil.Process(process_id).cpu_times()
        return float(times.user + times.system)
    return 0.0


def _machine_cpu_seconds() -> float:
    times = psutil.cpu_times()
    return float(times.user + times.system)


def _gpu_memory_bytes(process_ids: set[int]) -> int | None:
    """Return the GPU memory of processes of this machine; None if unknown.

    TensorFlow never releases GPU memory, so this is also the peak.
    """
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
    sizes = [it.usedGpuMemory or 0 for it in running if it.pid in process_ids]
    return sum(sizes) if sizes else None
