"""Environment of a sweep: packages, Git commit and changes of its code, kind of device."""

import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path

import ray

from tune_tf.resources import ACCELERATOR_PREFIX
from tune_tf.secrets import mask_secrets
from tune_tf.version import __version__

_PACKAGES = ("tensorflow", "keras", "ray", "optuna", "mlflow", "numpy")
_TIMEOUT_S = 20.0
_MAX_DIFF_LENGTH = 256 * 1024


def environment_texts() -> dict[str, str]:
    """Return packages and uncommitted code changes, as texts by file name."""
    texts = {"packages.txt": packages()}
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
    """Return the kind of device that trials train on, by Ray's name of GPUs, or the processor."""
    if not on_gpu:
        return cpu_model(Path("/proc/cpuinfo"))
    kinds = (name for name in ray.cluster_resources() if name.startswith(ACCELERATOR_PREFIX))
    return " and ".join(sorted(name.removeprefix(ACCELERATOR_PREFIX) for name in kinds)) or "GPU"


def packages() -> str:
    """Return installed packages and versions, one per line, like ``pip freeze``."""
    found = (each.metadata for each in distributions())  # parsed at each access
    lines = {f"{each['Name']}=={each['Version']}" for each in found if each["Name"]}
    return "\n".join(sorted(lines, key=str.lower)) + "\n"


def cpu_model(cpuinfo: Path) -> str:
    """Return the processor's name, from Linux's ``cpuinfo`` file if it exists."""
    try:
        lines = cpuinfo.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _git(*command: str) -> str:
    """Return Git's output; empty if it fails, is missing or times out."""
    folder = code_folder(sys.argv[0], Path(sys.prefix))
    try:
        answer = subprocess.run(  # noqa: S603 - a fixed command
            ["git", "--no-optional-locks", "-C", str(folder), *command],  # noqa: S607
            capture_output=True,
            check=True,
            timeout=_TIMEOUT_S,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stdout.decode(errors="replace")
