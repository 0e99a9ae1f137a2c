"""Resources of the machine and the Ray cluster."""

import os
from dataclasses import dataclass

import psutil
import ray


@dataclass(frozen=True)
class Machine:
    """Resources of the Ray cluster, and of this machine before the measurement.

    ``num_cores``, ``memory_bytes``, ``available_bytes`` and ``busy_cores`` describe this machine.
    """

    num_nodes: int
    cpus: float
    gpus: float
    num_cores: int
    memory_bytes: int
    available_bytes: int
    busy_cores: float

    @classmethod
    def of(cls, busy_cores: float) -> "Machine":
        """Inspect the connected cluster and this machine.

        ``busy_cores`` is measured by :func:`measure_busy_cores` before a cluster is started.
        """
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        memory = psutil.virtual_memory()
        return cls(
            num_nodes=len(nodes),
            cpus=sum(node.get("CPU", 0) for node in nodes),
            gpus=sum(node.get("GPU", 0) for node in nodes),
            num_cores=_num_cores(),
            memory_bytes=int(memory.total),
            available_bytes=int(memory.available),
            busy_cores=busy_cores,
        )

    def __str__(self) -> str:
        """Describe the cluster in a few words."""
        nodes = f"{self.num_nodes} nodes with " if self.num_nodes > 1 else ""
        gpus = f", {self.gpus:g} GPU(s)" if self.gpus else ""
        return f"{nodes}{self.cpus:g} CPU(s){gpus}, {self.memory_bytes / 1e9:.0f} GB of memory"


def measure_busy_cores(seconds: float = 0.5) -> float:
    """Measure how many cores of this machine are busy."""
    return float(psutil.cpu_percent(interval=seconds)) / 100 * _num_cores()


def _num_cores() -> int:
    return os.cpu_count() or 1
