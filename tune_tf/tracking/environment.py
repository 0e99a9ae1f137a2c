"""Environment of a sweep: packages, Git commit and changes of its code, machine, cluster."""

import json
import os
import platform
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path
from typing import Any

import psutil
import ray

from tune_tf.resources import ACCELERATOR_PREFIX
from tune_tf.secrets import mask_secrets
from tune_tf.version import __version__

_PACKAGES = ("tensorflow", "keras", "ray", "optuna", "mlflow", "numpy")
_GPU_FIELDS = ("name", "memory.total", "driver_version")
_TIMEOUT_S = 20.0
_MAX_DIFF_LENGTH = 256 * 1024


def environment_texts() -> dict[str, str]:
    """Return packages, hardware and uncommitted code changes, as texts by file name."""
    texts = {"packages.txt": packages(), "hardware.json": hardware()}
    diff = _git("diff", "HEAD", "--no-color", "--no-ext-diff")
    # Part by part: masking one long text would block other threads.
    parts = diff[:_MAX_DIFF_LENGTH].split("\ndiff --git ")
    if diff:
        texts["git.diff"] = "\ndiff --git ".join(map(mask_secrets, parts))
    return texts


def git_commit() -> str:
    """Return the Git commit of this process's script or working directory; empty without one."""
    return _git("rev-parse", "HEAD").strip()


def code_folder(script: str, installed: Path) -> Path:
    """Return the folder of a script; the working directory if there is none.

    A script below the Python installation ``installed``, such as the ``tune-tf`` command, is not
    the user's code.
    """
    path = Path(script).resolve()
    is_users = path.is_file() and not path.is_relative_to(installed.resolve())
    return path.parent if is_users else Path.cwd()


def versions() -> dict[str, str]:
    """Return the versions of Python, tune_tf and its main dependencies."""
    texts = {"tune_tf": __version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            texts[package] = version(package)
        except PackageNotFoundError:
            texts[package] = "not installed"
    return texts


def trial_device(*, on_gpu: bool) -> str:
    """Return the kind of device that trials train on: names of GPUs, or this machine's processor.

    Without a GPU here, the GPUs are those of the Ray cluster, by Ray's names.
    """
    if not on_gpu:
        return cpu_model(Path("/proc/cpuinfo"))
    prefix = ACCELERATOR_PREFIX
    names = {each["name"] for each in gpus()} or {
        name.removeprefix(prefix) for name in ray.cluster_resources() if name.startswith(prefix)
    }
    return " and ".join(sorted(names)) or "GPU"


def packages() -> str:
    """Return installed packages and versions, one per line, like ``pip freeze``."""
    found = (each.metadata for each in distributions())  # parsed at each access
    lines = {f"{each['Name']}=={each['Version']}" for each in found if each["Name"]}
    return "\n".join(sorted(lines, key=str.lower)) + "\n"


def hardware() -> str:
    """Return the driver's machine and the resources of the Ray cluster as JSON."""
    machine: dict[str, Any] = {
        "host": platform.node(),
        "os": platform.platform(),
        "python": platform.python_version(),
        "cpu": cpu_model(Path("/proc/cpuinfo")),
        "cpu_cores": os.cpu_count(),
        "usable_cpu_cores": len(os.sched_getaffinity(0)),
        "memory_bytes": psutil.virtual_memory().total,
        "gpus": gpus(),
        "ray_cluster": _cluster_resources(),
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
    query = f"--query-gpu={','.join(_GPU_FIELDS)}"
    text = _output(program, query, "--format=csv,noheader") if program else ""
    rows = (line.split(", ") for line in text.splitlines())
    return [
        dict(zip(_GPU_FIELDS, row, strict=True)) for row in rows if len(row) == len(_GPU_FIELDS)
    ]


def _cluster_resources() -> dict[str, float]:
    try:
        return dict(ray.cluster_resources()) if ray.is_initialized() else {}
    except (ray.exceptions.RayError, ConnectionError, RuntimeError):  # the cluster is shutting down
        return {}


def _git(*command: str) -> str:
    folder = code_folder(sys.argv[0], Path(sys.prefix))
    return _output("git", "--no-optional-locks", "-C", str(folder), *command)


def _output(*command: str) -> str:
    """Return a program's output; empty if it fails, is missing or times out."""
    try:
        answer = subprocess.run(  # noqa: S603 - a fixed command
            command, capture_output=True, check=True, timeout=_TIMEOUT_S
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stdout.decode(errors="replace")
