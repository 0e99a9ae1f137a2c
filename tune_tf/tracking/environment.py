"""Environment of a sweep: packages, Git commit and changes of its code, machine, cluster."""

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path
from typing import Any

import psutil
import ray

from tune_tf.resources import ACCELERATOR_PREFIX
from tune_tf.secrets import mask_secrets
from tune_tf.version import __version__

GIT_COMMIT = "mlflow.source.git.commit"
GIT_DIRTY_TAG = "tune_tf.git_dirty"

_FOLDER = "environment"
_PACKAGES = ("tensorflow", "keras", "ray", "optuna", "mlflow", "numpy")
_GPU_FIELDS = ("name", "memory.total", "driver_version")
_TIMEOUT_S = 20.0
_MAX_DIFF_BYTES = 256 * 1024


@dataclass(frozen=True)
class Repository:
    """Git repository of a sweep's code, given any folder in it."""

    folder: Path

    @classmethod
    def of(cls, script: str, working_dir: Path, installed: Path) -> "Repository | None":
        """Return the repository of a script, else of the working directory; None without one.

        A script below the Python installation ``installed``, such as the ``tune-tf`` command, is
        ignored: it is not the user's code.
        """
        path = (working_dir / script).resolve()
        folders = [working_dir]
        if path.is_file() and not path.is_relative_to(installed.resolve()):
            folders.insert(0, path.parent)
        for folder in folders:
            repository = cls(folder)
            if repository._ask("rev-parse", "--is-inside-work-tree") == "true":
                return repository
        return None

    @classmethod
    def of_this_process(cls) -> "Repository | None":
        """Return the repository of this process's script or working directory."""
        return cls.of(sys.argv[0] if sys.argv else "", Path.cwd(), Path(sys.prefix))

    def tags(self) -> dict[str, str]:
        """Return the known Git tags of a run."""
        tags = {
            GIT_COMMIT: self._ask("rev-parse", "HEAD"),
            "mlflow.source.git.branch": self._ask("symbolic-ref", "--short", "HEAD"),
            "mlflow.source.git.repoURL": self._ask("config", "--get", "remote.origin.url"),
        }
        known_tags = {name: value for name, value in tags.items() if value}
        changes = self._ask("status", "--porcelain", "--untracked-files=no")
        if GIT_COMMIT in known_tags and changes is not None:
            known_tags[GIT_DIRTY_TAG] = str(bool(changes)).lower()
        return known_tags

    def diff(self) -> str:
        """Return the uncommitted changes of tracked files as a diff of at most 256 KiB."""
        text = self._ask("diff", "HEAD", "--no-color", "--no-ext-diff", strip=False) or ""
        if len(text) > _MAX_DIFF_BYTES:
            start = text[:_MAX_DIFF_BYTES].rpartition("\n")[0]
            return f"{start}\n# cut here: {len(text) - len(start)} more characters of the diff\n"
        return text

    def _ask(self, *command: str, strip: bool = True) -> str | None:
        """Return Git's output; None if Git fails, is missing or times out."""
        git = {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
        text = _output(["git", "-C", str(self.folder), *command], env={**os.environ, **git})
        return text.strip() if strip and text else text


def environment_artifacts(repository: Repository | None) -> dict[str, str]:
    """Return artifacts with packages, hardware and code changes, as texts by path."""
    texts = {"packages.txt": packages(), "hardware.json": hardware()}
    if repository is not None and (diff := repository.diff()):
        # File by file: masking one long text would block other threads.
        parts = re.split(r"(?m)^(?=diff --git )", diff)
        texts["git.diff"] = "".join(map(mask_secrets, parts))
    return {f"{_FOLDER}/{name}": text for name, text in texts.items()}


def environment_digest(texts: Mapping[str, str]) -> str:
    """Return a digest of the artifacts."""
    return hashlib.sha256(json.dumps(texts, sort_keys=True).encode()).hexdigest()


def resume_artifacts(texts: Mapping[str, str]) -> dict[str, str]:
    """Return the artifacts with paths in a folder of this resume."""
    resumed = time.strftime(f"{_FOLDER}/resumed-%Y%m%d-%H%M%S/", time.gmtime())
    return {name.replace(f"{_FOLDER}/", resumed, 1): text for name, text in texts.items()}


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
    """Return the driver's machine and the Ray cluster as JSON."""
    machine: dict[str, Any] = {
        "host": platform.node(),
        "os": platform.platform(),
        "python": platform.python_version(),
        "cpu": cpu_model(Path("/proc/cpuinfo")),
        "cpu_cores": os.cpu_count(),
        "usable_cpu_cores": len(os.sched_getaffinity(0)),
        "memory_bytes": psutil.virtual_memory().total,
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
    query = f"--query-gpu={','.join(_GPU_FIELDS)}"
    text = _output([program, query, "--format=csv,noheader"]) if program else None
    rows = (line.split(", ") for line in (text or "").splitlines())
    return [
        dict(zip(_GPU_FIELDS, row, strict=True)) for row in rows if len(row) == len(_GPU_FIELDS)
    ]


def _output(command: list[str], env: Mapping[str, str] | None = None) -> str | None:
    """Return a program's output; None if it fails, is missing or times out."""
    try:
        answer = subprocess.run(  # noqa: S603 - a fixed command
            command, capture_output=True, check=True, timeout=_TIMEOUT_S, env=env
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.decode(errors="replace")


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
