"""Versions of the packages that a sweep runs with."""

import platform
from importlib.metadata import PackageNotFoundError, version

from tune_tf.version import __version__

_PACKAGES = ("tensorflow", "keras", "ray", "optuna", "mlflow", "numpy")


def versions() -> dict[str, str]:
    """Return the versions of Python, tune_tf and its main dependencies."""
    found = {"tune_tf": __version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found
