"""What a sweep will run on."""

import os
from dataclasses import dataclass

import psutil
import ray


@dataclass(frozen=True)
class Machine:
    """A Ray cluster and this machine, before anything was started.

    Args:
        num_nodes: Of the Ray cluster.
        cpus: All of them.
        gpus: All of them.
        num_cores: Of this machine.
        memory_bytes: Of this machine.
        available_bytes: Of this machine's memory, before anything was started.
        busy_cores: Cores of this machine that other programs used then.
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
        """Look at the cluster that is connected, and at this machine.

        Args:
            busy_cores: As :func:`busy` found them before a cluster was started.
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
        """Return it in words."""
        nodes = f"{self.num_nodes} nodes with " if self.num_nodes > 1 else ""
        gpus = f", {self.gpus:g} GPU(s)" if self.gpus else ""
        return f"{nodes}{self.cpus:g} CPU(s){gpus}, {self.memory_bytes / 1e9:.0f} GB of memory"


def busy(seconds: float = 0.5) -> float:
    """Return how many cores of this machine are used, over some seconds."""
    return float(psutil.cpu_percent(interval=seconds)) / 100 * _num_cores()


def _num_cores() -> int:
    return os.cpu_count() or 1
