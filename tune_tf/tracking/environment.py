"""Environment of a sweep: packages, code changes, machine, cluster."""

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import time
from collections.abc import Mapping
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import ray

from tune_tf.secrets import mask_secrets
from tune_tf.tracking.provenance import Repository

ENVIRONMENT_FOLDER = "environment"
_GPU_FIELDS = ("name", "memory.total", "driver_version")
_TIMEOUT_S = 10.0


def environment_artifacts(repository: Repository | None) -> dict[str, str]:
    """Return artifacts with packages, hardware and code changes, as texts by path."""
    found = {"packages.txt": packages(), "hardware.json": hardware()}
    if repository is not None and (diff := repository.diff()):
        # File by file: masking one long text would block other threads.
        parts = re.split(r"(?m)^(?=diff --git )", diff)
        found["git.diff"] = "".join(map(mask_secrets, parts))
    return {f"{ENVIRONMENT_FOLDER}/{name}": text for name, text in found.items()}


def environment_digest(texts: Mapping[str, str]) -> str:
    """Return a digest of the artifacts."""
    return hashlib.sha256(json.dumps(texts, sort_keys=True).encode()).hexdigest()


def resume_artifacts(texts: Mapping[str, str]) -> dict[str, str]:
    """Return the artifacts with paths in a folder of this resume."""
    resumed = time.strftime(f"{ENVIRONMENT_FOLDER}/resumed-%Y%m%d-%H%M%S/", time.gmtime())
    return {
        name.replace(f"{ENVIRONMENT_FOLDER}/", resumed, 1): text for name, text in texts.items()
    }


def packages() -> str:
    """Return installed packages and versions, one per line, like ``pip freeze``."""
    found = {f"{each.name}=={each.version}" for each in distributions() if each.name}
    return "\n".join(sorted(found, key=str.lower)) + "\n"


def hardware() -> str:
    """Return the driver's machine and the Ray cluster as JSON."""
    machine: dict[str, Any] = {
        "host": platform.node(),
        "os": platform.platform(),
        "python": platform.python_version(),
        "cpu": cpu_model(Path("/proc/cpuinfo")),
        "cpu_cores": os.cpu_count(),
        "usable_cpu_cores": _usable_cores(),
        "memory_bytes": _memory_bytes(),
        "gpus": gpus(),
        "ray_nodes": _nodes(),
    }
    return json.dumps(machine, indent=2) + "\n"


def cpu_model(cpuinfo: Path) -> str:
    """Return the processor's name, from Linux's ``cpuinfo`` file if it exists."""
    try:
        lines = cpuinfo.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def gpus() -> list[dict[str, str]]:
    """Return the NVIDIA GPUs that ``nvidia-smi`` lists; empty without it."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    query = f"--query-gpu={','.join(_GPU_FIELDS)}"
    try:
        answer = subprocess.run(  # noqa: S603 - a fixed command
            [program, query, "--format=csv,noheader"],
            capture_output=True,
            check=True,
            text=True,
            timeout=_TIMEOUT_S,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    rows = (line.split(", ") for line in answer.stdout.splitlines())
    return [
        dict(zip(_GPU_FIELDS, row, strict=True)) for row in rows if len(row) == len(_GPU_FIELDS)
    ]


def _usable_cores() -> int | None:
    affinity = getattr(os, "sched_getaffinity", None)  # Linux only
    return len(affinity(0)) if affinity else os.cpu_count()


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not on this system
        return None


def _nodes() -> list[dict[str, Any]]:
    try:
        nodes = ray.nodes() if ray.is_initialized() else []
    except (ray.exceptions.RayError, ConnectionError, RuntimeError):  # the cluster is shutting down
        return []
    return [
        {
            "host": node["NodeManagerHostname"],
            "resources": {
                name: amount
                for name, amount in sorted(node["Resources"].items())
                if not name.startswith("node:")
            },
        }
        for node in nodes
        if node["Alive"]
    ]
