"""The load of a trial's machine, process and GPUs, under MLflow's own names for it.

Names and units are those of ``mlflow.system_metrics``, so that MLflow shows them where it shows its
own. They are sampled at the end of an iteration: that needs no thread and takes well under a
millisecond.
"""

import contextlib
import importlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psutil

from tune_tf.result_keys import SYSTEM_METRICS

_EVERY_S = 1.0
_SHORTEST_S = 0.1  # psutil: a share of the CPU over less time than this means nothing
_MB = 1e6


class SystemMetrics:
    """Samples the load of machine and process, once a second at most and once a trial at least.

    Args:
        gpus: The GPUs to look at; :func:`reserved_gpus` finds the trial's.
        clock: Seconds that only grow.
    """

    def __init__(
        self, gpus: "Sequence[Gpu]" = (), clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._gpus = tuple(gpus)
        self._clock = clock
        self._process = psutil.Process()
        self._first_of_trial = True
        self._cpu()  # psutil counts from one call to the next
        self._counted = self._sampled = clock()

    def begin(self) -> None:
        """Begin a trial: its first iteration is sampled whenever the last one was."""
        self._first_of_trial = True

    def sample(self) -> dict[str, float]:
        """Return the metrics by key of a result; empty where it is not time for them.

        CPU shares are of the time since they were last told in this process, and left out where
        that is too short; a process on two full cores has 200 %.
        """
        now = self._clock()
        if not self._first_of_trial and now - self._sampled < _EVERY_S:
            return {}
        self._first_of_trial, self._sampled = False, now
        metrics = self._memory()
        if now - self._counted >= _SHORTEST_S:
            self._counted = now
            metrics |= self._cpu()
        for gpu in self._gpus:
            metrics |= gpu.load()
        return {f"{SYSTEM_METRICS}{name}": value for name, value in metrics.items()}

    def _cpu(self) -> dict[str, float]:
        return {
            "cpu_utilization_percentage": psutil.cpu_percent(),
            "process_cpu_utilization_percentage": self._process.cpu_percent(),
        }

    def _memory(self) -> dict[str, float]:
        memory = psutil.virtual_memory()
        return {
            "system_memory_usage_megabytes": round(memory.used / _MB, 1),
            "system_memory_usage_percentage": round(memory.used / memory.total * 100, 1),
            "process_memory_usage_megabytes": round(self._process.memory_info().rss / _MB, 1),
        }


@dataclass(frozen=True)
class Gpu:
    """One GPU of this machine.

    Args:
        nvml: The module ``pynvml``, started.
        index: The driver's number of the card, which MLflow names it by.
        handle: What NVML knows it by.
    """

    nvml: Any
    index: int
    handle: Any

    def load(self) -> dict[str, float]:
        """Return what the driver tells of memory, use and power; some cards do not tell all."""
        nvml, found = self.nvml, dict[str, float]()
        with contextlib.suppress(nvml.NVMLError):
            memory = nvml.nvmlDeviceGetMemoryInfo(self.handle)
            found["memory_usage_percentage"] = round(memory.used / memory.total * 100, 1)
            found["memory_usage_megabytes"] = round(memory.used / _MB, 1)
        with contextlib.suppress(nvml.NVMLError):
            use = nvml.nvmlDeviceGetUtilizationRates(self.handle)
            found["utilization_percentage"] = float(use.gpu)
        with contextlib.suppress(nvml.NVMLError):
            milliwatts = nvml.nvmlDeviceGetPowerUsage(self.handle)
            limit = nvml.nvmlDeviceGetEnforcedPowerLimit(self.handle)
            found["power_usage_watts"] = round(milliwatts / 1000, 1)
            found["power_usage_percentage"] = round(milliwatts / limit * 100, 1)
        return {f"gpu_{self.index}_{name}": value for name, value in found.items()}


def reserved_gpus(visible: str | None = None, nvml: Any = None) -> tuple[Gpu, ...]:
    """Return the GPUs of this trial; none where the driver or ``nvidia-ml-py`` is missing.

    Args:
        visible: What ``CUDA_VISIBLE_DEVICES`` says, as Ray sets it for a trial that reserved GPUs:
            numbers or UUIDs; by default what the environment has. All GPUs where it is not set.
        nvml: The module ``pynvml``, or what stands in for it.
    """
    if nvml is None:
        try:
            nvml = importlib.import_module("pynvml")
        except ImportError:  # an option: only machines with NVIDIA cards have use for it
            return ()
    if visible is None:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    try:
        nvml.nvmlInit()
        return tuple(Gpu(nvml, nvml.nvmlDeviceGetIndex(it), it) for it in _handles(nvml, visible))
    except nvml.NVMLError:
        return ()


def _handles(nvml: Any, visible: str | None) -> Iterator[Any]:
    if visible is None:
        for index in range(nvml.nvmlDeviceGetCount()):
            yield nvml.nvmlDeviceGetHandleByIndex(index)
        return
    for name in filter(None, (part.strip() for part in visible.split(","))):
        if name.isdigit():
            yield nvml.nvmlDeviceGetHandleByIndex(int(name))
        else:
            yield nvml.nvmlDeviceGetHandleByUUID(name)
