"""Sweeps on a remote cluster by Ray Client (``ray://``)."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray

from tune_tf.config import ClusterSettings, SweepConfig
from tune_tf.errors import ErrorDetail, InvalidSettingsError, TuneTfError
from tune_tf.results import SweepResult
from tune_tf.sweep.cluster import is_client


def is_remote_client(settings: ClusterSettings | None = None) -> bool:
    """Return whether a sweep uses Ray Client.

    Args:
        settings: Cluster to connect to; None for the connected one.
    """
    if ray.is_initialized() or settings is None:
        return bool(ray.util.client.ray.is_connected())
    return is_client(os.environ.get("RAY_ADDRESS") or settings.address)


def check_paths(config: SweepConfig) -> None:
    """Reject settings whose files would be lost with the driver process on the cluster.

    Raises:
        InvalidSettingsError: Lists all errors.
    """
    errors = []
    if config.remote_storage or not Path(config.storage_path.removeprefix("file://")).is_absolute():
        errors.append(
            ErrorDetail(
                "storage_path",
                f"is {config.storage_path!r}, but the driver runs on the cluster: give an "
                "absolute path that all its nodes can reach",
            )
        )
    uri = config.mlflow.tracking_uri if config.mlflow else ""
    scheme, slashes, path = uri.partition(":///")
    if scheme == "sqlite" and slashes and not path.startswith("/"):
        errors.append(
            ErrorDetail(
                "mlflow.tracking_uri",
                f"is {uri!r}, but the driver runs on the cluster: give an MLflow server that the "
                "cluster reaches",
            )
        )
    if errors:
        raise InvalidSettingsError(errors)


def run_on_cluster(
    drive: Callable[..., SweepResult], *arguments: Any, **options: Any
) -> SweepResult:
    """Run the driver of a sweep in a process on the cluster and return its result.

    Its output is printed here, and an interrupt here interrupts it.

    Raises:
        TuneTfError: As raised by ``drive``.
    """
    driven = ray.remote(num_cpus=0, max_retries=0, max_calls=1)(drive).remote(*arguments, **options)
    try:
        result: SweepResult = ray.get(driven)
    except KeyboardInterrupt:
        ray.cancel(driven, force=False)
        ray.wait([driven])
        raise
    except ray.exceptions.RayTaskError as error:
        cause = error.cause
        raise (cause if isinstance(cause, TuneTfError) else error) from None
    return result
