"""Ray cluster section of a sweep file."""

from typing import Annotated, Any

from pydantic import AfterValidator

from tune_tf.config.error_text import short_repr, unknown_key
from tune_tf.config.settings import Settings
from tune_tf.secrets import mask_secrets

_RUNTIME_ENV = (
    "conda",
    "config",
    "container",
    "env_vars",
    "excludes",
    "image_uri",
    "pip",
    "py_executable",
    "py_modules",
    "uv",
    "working_dir",
)


def _address(address: str) -> str:
    if not address.strip():
        raise ValueError("is empty: give auto, host:port or ray://host:port, or leave it out")
    return address


def _runtime_env(environment: dict[str, Any]) -> dict[str, Any]:
    for key in environment:
        if key not in _RUNTIME_ENV:
            raise ValueError(f"holds {short_repr(key)}: {unknown_key(key, _RUNTIME_ENV).what}")
    variables = environment.get("env_vars", {})
    if not isinstance(variables, dict):
        raise ValueError(
            f"must hold env_vars as a mapping of names to text, not {short_repr(variables)}"
        )
    for name, value in variables.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise ValueError(f"must hold text as env_vars, not {name!r}: {short_repr(value)}")
        if mask_secrets(f"{name}={value}") != f"{name}={value}":
            raise ValueError(
                f"holds what looks like a secret in env_vars.{name}: write ${{{name}}} there, and "
                "set the variable where the sweep is started"
            )
    return environment


class ClusterSettings(Settings):
    """Ray cluster of a sweep.

    Args:
        address: ``auto`` for the cluster that this machine belongs to, ``host:port`` of a cluster's
            GCS, or ``ray://host:port`` of its client server, for a machine outside of it; None for
            a local cluster. The environment variable ``RAY_ADDRESS`` takes precedence.
        runtime_env: Ray's ``runtime_env`` of the trials' processes: ``working_dir``, ``pip``,
            ``env_vars`` and so on. Paths are relative to the sweep file; values of ``env_vars`` may
            contain references ``${NAME}``.
    """

    address: Annotated[str, AfterValidator(_address)] | None = None
    runtime_env: Annotated[dict[str, Any], AfterValidator(_runtime_env)] | None = None
