"""CPU, memory and GPU metrics of a trial, named as in ``mlflow.system_metrics``.

They are sampled at the end of an iteration, which takes less than a millisecond and no thread.
"""

import contextlib
import importlib
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tune_tf.result_keys import PEAK_MEMORY, SYSTEM_METRICS


def sum_peak_memory(
    report: Mapping[str, Any], reports: Iterable[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return a report with the summed peak memory of all processes of a trial."""
    return {**report, PEAK_MEMORY: sum(each[PEAK_MEMORY] for each in reports)}


def peak_memory_result() -> dict[str, float]:
    """Return this process's peak memory by result key.

    Only Linux reports a peak; on other systems, it is the current memory.
    """
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        peak = next(line for line in lines if line.startswith("VmHWM"))
        return {PEAK_MEMORY: int(peak.split()[1]) * 1024.0}
    return {PEAK_MEMORY: float(psutil.Process().memory_info().rss)}


_INTERVAL_S = 1.0
_MB = 1e6


class SystemMetrics:
    """Sampler of system metrics, at most once a second and at least once a trial."""

    def __init__(
        self, gpus: "Sequence[Gpu]" = (), clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._gpus = tuple(gpus)
        self._clock = clock
        self._process = psutil.Process()
        self._is_first_of_trial = True
        self._cpu()  # psutil measures from call to call
        self._sampled_s = clock()

    def begin(self) -> None:
        """Begin a trial; its first iteration is always sampled."""
        self._is_first_of_trial = True

    def sample(self) -> dict[str, float]:
        """Return the metrics by result key; empty if no sample is due.

        CPU percentages cover the time since the last sample. A process on two full cores has 200 %.
        """
        now = self._clock()
        if not self._is_first_of_trial and now - self._sampled_s < _INTERVAL_S:
            return {}
        self._is_first_of_trial, self._sampled_s = False, now
        metrics = self._memory() | self._cpu()
        for gpu in self._gpus:
            metrics |= gpu.metrics()
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
    """GPU of this machine, by the initialized ``pynvml``, the driver's index and NVML's handle."""

    nvml: Any
    index: int  # in MLflow's metric names
    handle: Any

    def metrics(self) -> dict[str, float]:
        """Return memory and utilization, as far as the GPU reports them."""
        nvml, metrics = self.nvml, dict[str, float]()
        with contextlib.suppress(nvml.NVMLError):
            memory = nvml.nvmlDeviceGetMemoryInfo(self.handle)
            metrics["memory_usage_percentage"] = round(memory.used / memory.total * 100, 1)
            metrics["memory_usage_megabytes"] = round(memory.used / _MB, 1)
        with contextlib.suppress(nvml.NVMLError):
            rates = nvml.nvmlDeviceGetUtilizationRates(self.handle)
            metrics["utilization_percentage"] = float(rates.gpu)
        return {f"gpu_{self.index}_{name}": value for name, value in metrics.items()}


def reserved_gpus(visible: str | None = None, nvml: Any = None) -> tuple[Gpu, ...]:
    """Return the GPUs of this trial; none if the driver or ``nvidia-ml-py`` is missing.

    ``visible`` is the value of ``CUDA_VISIBLE_DEVICES``, numbers or UUIDs; by default from the
    environment, or all GPUs if it is not set.
    """
    if nvml is None:
        try:
            nvml = importlib.import_module("pynvml")
        except ImportError:  # optional: useful only with NVIDIA GPUs
            return ()
    if visible is None:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    try:
        nvml.nvmlInit()
        if visible is None:
            visible = ",".join(map(str, range(nvml.nvmlDeviceGetCount())))
        names = [name.strip() for name in visible.split(",") if name.strip()]
        handles = [
            nvml.nvmlDeviceGetHandleByIndex(int(name))
            if name.isdigit()
            else nvml.nvmlDeviceGetHandleByUUID(name)
            for name in names
        ]
        return tuple(Gpu(nvml, nvml.nvmlDeviceGetIndex(handle), handle) for handle in handles)
    except nvml.NVMLError:
        return ()
