"""Ray cluster of a sweep: the connected one, a named one, or a temporary one."""

import contextlib
import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import ray

from tune_tf.config import ClusterSettings
from tune_tf.errors import ErrorDetail, InvalidSettingsError, UnavailableResourcesError
from tune_tf.parallelism import Parallelism
from tune_tf.resources import TrialResources
from tune_tf.secrets import expand_references
from tune_tf.trainables.capacity import capacity_by_node, check_cluster, num_trials

_ANSWER_S = 10

# Tune's behaviour, unless the user's environment sets it.
TUNE_ENVIRONMENT = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # a sweep names its loggers
    "TUNE_GLOBAL_CHECKPOINT_S": "1000000",  # of Tune's own state, which nobody reads
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",  # the scheduler checks, and lists known metrics
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",  # in the result, MLflow and error.txt
    "RAY_AIR_NEW_OUTPUT": "0",
    "TF_CPP_MIN_LOG_LEVEL": "2",
}


def num_fitting(resources: TrialResources, parallelism: Parallelism) -> int:
    """Return how many trials fit at once; raise UnavailableResourcesError if none does."""
    check_cluster(resources, parallelism)
    if ray.is_initialized():
        return num_trials(capacity_by_node(parallelism.shares(resources)[0]), parallelism)
    if resources.custom:
        raise UnavailableResourcesError(
            f"a trial asks for {', '.join(resources.custom)}, which a cluster that is started for "
            "the sweep does not have: start it by `ray start --head --resources`, or connect to one"
        )
    num_cpus = os.cpu_count() or 1
    if resources.cpus > num_cpus:
        raise UnavailableResourcesError(
            f"a trial asks for {resources.cpus} CPUs, but this machine has {num_cpus}: it would "
            "wait forever; ask for less, or connect to a Ray cluster"
        )
    return 1 if resources.gpus else num_cpus // resources.cpus


@contextlib.contextmanager
def cluster(
    settings: ClusterSettings | None = None, base_dir: Path | None = None
) -> Iterator[None]:
    """Use the connected Ray cluster, or connect to one within the context.

    Without an address in ``RAY_ADDRESS`` or the settings, a local cluster is started. Relative
    paths in the settings start from ``base_dir``.

    Raises:
        UnavailableResourcesError: The cluster does not answer.
        InvalidSettingsError: Ray rejects the address or the runtime environment.
    """
    if ray.is_initialized():
        if ray.util.client.ray.is_connected():
            raise InvalidSettingsError("this process uses Ray Client: use `ray job submit` instead")
        yield
        return
    settings = settings or ClusterSettings()
    address = cluster_address(settings)
    _check_address(address)
    environment = runtime_env(settings, base_dir or Path.cwd())
    with environment_defaults(TUNE_ENVIRONMENT), _keep_sigterm():  # the workers inherit it
        try:
            ray.init(
                address or "local",  # never an unrelated cluster on this machine
                include_dashboard=None if address else False,
                log_to_driver=False,
                logging_level=logging.ERROR,
                runtime_env=environment,
            )
        except ConnectionError as error:
            raise _no_answer(address, error) from error
        except (ValueError, TypeError) as error:
            if not settings.runtime_env:
                raise
            raise InvalidSettingsError(ErrorDetail("cluster.runtime_env", str(error))) from error
    try:
        yield
    finally:
        ray.shutdown()


@contextlib.contextmanager
def _keep_sigterm() -> Iterator[None]:
    """Restore a handler of SIGTERM that Ray replaces by one that exits without a word."""
    handler = signal.getsignal(signal.SIGTERM)
    if not callable(handler) or threading.current_thread() is not threading.main_thread():
        yield
        return
    try:
        yield
    except SystemExit as error:
        if error.code != signal.SIGTERM:
            raise
        handler(signal.SIGTERM, None)
    finally:
        signal.signal(signal.SIGTERM, handler)


def cluster_address(settings: ClusterSettings) -> str | None:
    """Return the address of the cluster to connect to; None for a local one.

    Raises:
        InvalidSettingsError: ``RAY_ADDRESS`` is of another form than an address in the settings.
    """
    address = os.environ.get("RAY_ADDRESS")
    try:
        return ClusterSettings(address=address).address if address else settings.address
    except InvalidSettingsError as error:
        raise InvalidSettingsError(f"RAY_ADDRESS {error.details[0].what}") from None


def _check_address(address: str | None) -> None:
    """Fail fast if a cluster does not answer; Ray itself tries for minutes."""
    if address in (None, "auto", "local"):
        return
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=_ANSWER_S).close()
    except OSError as error:
        raise _no_answer(address, error) from error


def _no_answer(address: str | None, error: OSError) -> UnavailableResourcesError:
    return UnavailableResourcesError(
        f"no Ray cluster answers at {address!r}: {error}; start one with `ray start --head`, or "
        "name another as cluster.address"
    )


def runtime_env(settings: ClusterSettings, base_dir: Path) -> dict[str, Any] | None:
    """Return Ray's runtime environment for the processes of a sweep; None if empty.

    Relative paths start from ``base_dir``.

    Raises:
        InvalidSettingsError: An environment variable in the settings is not set.
    """
    environment = with_absolute_paths(settings.runtime_env or {}, base_dir)
    if "env_vars" in environment:
        environment["env_vars"] = {
            name: expand_references(value, f"cluster.runtime_env.env_vars.{name}")
            for name, value in environment["env_vars"].items()
        }
    return environment or None


def with_absolute_paths(environment: Mapping[str, Any], base_dir: Path) -> dict[str, Any]:
    """Return a runtime environment whose relative paths start from ``base_dir``."""
    keys = (key for key in ("working_dir", "py_modules", "pip") if key in environment)
    return {**environment, **{key: _absolute_paths(environment[key], base_dir) for key in keys}}


def _absolute_paths(value: Any, base_dir: Path) -> Any:
    """Make existing paths absolute; leave URIs and package names unchanged."""
    if isinstance(value, list):
        return [_absolute_paths(each, base_dir) for each in value]
    is_path = isinstance(value, str) and "://" not in value and (base_dir / value).exists()
    return str((base_dir / value).resolve()) if is_path else value


def session_folder() -> Path | None:
    """Return Ray's session folder on this machine; None if the cluster is elsewhere."""
    context = ray.get_runtime_context()
    folder = Path(context.get_temp_dir(), context.get_session_name())
    return folder if folder.is_dir() else None


def runs_as_user() -> bool:
    """Return whether Ray's processes on this machine belong to the current user."""
    folder = session_folder()
    return folder is not None and folder.stat().st_uid == os.getuid()


@contextlib.contextmanager
def environment_defaults(variables: dict[str, str]) -> Iterator[None]:
    """Set environment variables within the context, unless the user has set them."""
    added = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)
