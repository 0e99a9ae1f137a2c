"""CPU, memory and GPU metrics of a trial, named as in ``mlflow.system_metrics``.

They are sampled at the end of an iteration, which takes less than a millisecond and no thread.
"""

import contextlib
import importlib
import math
import os
import time
from collections.abc import Iterable, Mapping, Sequence
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
    """Sampler of system metrics, at most once a second and at least once a trial.

    Args:
        gpus: NVML's handles of the GPUs, as of :func:`reserved_gpus`.
    """

    def __init__(self, gpus: Sequence[Any] = ()) -> None:
        self._gpus = gpus
        self._process = psutil.Process()
        self._cpu()  # psutil measures from call to call
        self.begin()

    def begin(self) -> None:
        """Begin a trial; its first iteration is always sampled."""
        self._sampled_s = -math.inf

    def sample(self) -> dict[str, float]:
        """Return the metrics by result key; empty if no sample is due.

        CPU percentages cover the time since the last sample. A process on two full cores has 200 %.
        """
        now = time.monotonic()
        if now - self._sampled_s < _INTERVAL_S:
            return {}
        self._sampled_s = now
        metrics = self._memory() | self._cpu()
        for gpu in self._gpus:
            metrics |= _gpu_metrics(gpu)
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


def _gpu_metrics(gpu: Any) -> dict[str, float]:
    """Return memory and utilization of a GPU, as far as it reports them, by the driver's index."""
    nvml, metrics = importlib.import_module("pynvml"), dict[str, float]()
    with contextlib.suppress(nvml.NVMLError):
        prefix, memory = f"gpu_{nvml.nvmlDeviceGetIndex(gpu)}", nvml.nvmlDeviceGetMemoryInfo(gpu)
        metrics[f"{prefix}_memory_usage_percentage"] = round(memory.used / memory.total * 100, 1)
        metrics[f"{prefix}_memory_usage_megabytes"] = round(memory.used / _MB, 1)
        rates = nvml.nvmlDeviceGetUtilizationRates(gpu)  # which parts of a GPU do not report
        metrics[f"{prefix}_utilization_percentage"] = float(rates.gpu)
    return metrics


def reserved_gpus() -> list[Any]:
    """Return NVML's handles of the GPUs in ``CUDA_VISIBLE_DEVICES``, numbers or UUIDs.

    Empty if that is not set, or if the driver or ``nvidia-ml-py`` is missing.
    """
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:  # optional: useful only with NVIDIA GPUs
        return []
    names = filter(None, os.environ.get("CUDA_VISIBLE_DEVICES", "").replace(" ", "").split(","))
    try:
        nvml.nvmlInit()
        return [
            nvml.nvmlDeviceGetHandleByIndex(int(name))
            if name.isdigit()
            else nvml.nvmlDeviceGetHandleByUUID(name)
            for name in names
        ]
    except nvml.NVMLError:
        return []
