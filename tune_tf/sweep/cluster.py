"""Ray cluster of a sweep: the connected one, a temporary one, or a remote one by Ray Client."""

import contextlib
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import ray

from tune_tf.config import ClusterSettings, SweepConfig
from tune_tf.errors import ErrorDetail, InvalidSettingsError, TuneTfError, UnavailableResourcesError
from tune_tf.parallelism import Mirrored, Parallelism
from tune_tf.resources import TrialResources
from tune_tf.secrets import expand_references
from tune_tf.sweep_folder import has_relative_path
from tune_tf.trainables.capacity import capacity_by_node, check_cluster, num_trials

_ANSWER_S = 10
_Result = TypeVar("_Result")

SNAPSHOT_PERIOD = "TUNE_GLOBAL_CHECKPOINT_S"

# Tune's behaviour, unless the user's environment sets it.
TUNE_ENVIRONMENT = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # a sweep names its loggers
    SNAPSHOT_PERIOD: "2",  # seconds of Tune's state that a kill may lose
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",  # the scheduler checks, and lists known metrics
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",  # in the result, MLflow and error.txt
    "RAY_AIR_NEW_OUTPUT": "0",
    "TF_CPP_MIN_LOG_LEVEL": "2",
}
_EXCLUDED = ("sweeps", ".venv", ".git", "mlruns", "*.db", "__pycache__")


def num_fitting(resources: TrialResources, parallelism: Parallelism = Mirrored()) -> int:  # noqa: B008  frozen
    """Return how many trials fit at once; raise UnavailableResourcesError if none does."""
    check_cluster(resources, parallelism)
    if ray.is_initialized():
        shares = parallelism.shares(resources)
        return num_trials(capacity_by_node(shares[0]), parallelism, shares)
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
        InvalidSettingsError: Ray rejects the runtime environment.
    """
    if ray.is_initialized():
        yield
        return
    settings = settings or ClusterSettings()
    address = cluster_address(settings)
    _check_address(address)
    environment = runtime_env(settings, base_dir or Path.cwd(), address)
    with environment_defaults(TUNE_ENVIRONMENT), _keep_sigterm():  # the workers inherit it
        try:
            ray.init(
                address or "local",  # never an unrelated cluster on this machine
                include_dashboard=None if address else False,
                log_to_driver=is_client(address),
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
    """Return the address of the cluster to connect to; None for a local one."""
    return os.environ.get("RAY_ADDRESS") or settings.address


def _check_address(address: str | None) -> None:
    """Fail fast if a cluster does not answer; Ray itself tries for minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        if not address or address in ("auto", "local") or "://" in address:
            return
        raise InvalidSettingsError(
            f"the cluster's address must be auto, host:port or ray://host:port, not {address!r}"
        )
    try:
        socket.create_connection((host, int(port)), timeout=_ANSWER_S).close()
    except OSError as error:
        raise _no_answer(address, error) from error


def _no_answer(address: str | None, error: OSError) -> UnavailableResourcesError:
    return UnavailableResourcesError(
        f"no Ray cluster answers at {address!r}: {error}; start one with `ray start --head`, or "
        "name another as cluster.address"
    )


def is_client(address: str | None) -> bool:
    """Return whether an address connects by Ray Client, from outside of the cluster."""
    return bool(address and address.startswith("ray://"))


def runtime_env(
    settings: ClusterSettings, base_dir: Path, address: str | None
) -> dict[str, Any] | None:
    """Return Ray's runtime environment for the processes of a sweep; None if empty.

    Relative paths start from ``base_dir``. With Ray Client, the folder of the sweep file is
    uploaded by default, without the outputs of sweeps.

    Raises:
        InvalidSettingsError: An environment variable in the settings is not set.
    """
    environment = dict(settings.runtime_env or {})
    if is_client(address):
        environment = {"working_dir": ".", "excludes": list(_EXCLUDED), **environment}
    for key in ("working_dir", "py_modules", "pip"):
        if key in environment:
            environment[key] = _absolute_paths(environment[key], base_dir)
    if "env_vars" in environment:
        environment["env_vars"] = {
            name: expand_references(value, f"cluster.runtime_env.env_vars.{name}")
            for name, value in environment["env_vars"].items()
        }
    return environment or None


def _absolute_paths(value: Any, base_dir: Path) -> Any:
    """Make existing paths absolute; leave URIs and package names unchanged."""
    if isinstance(value, list):
        return [_absolute_paths(each, base_dir) for each in value]
    is_path = isinstance(value, str) and "://" not in value and (base_dir / value).exists()
    return str((base_dir / value).resolve()) if is_path else value


def session_folder() -> Path | None:
    """Return Ray's session folder on this machine; None if the cluster is elsewhere."""
    context = ray.get_runtime_context()
    try:
        folder = Path(context.get_temp_dir(), context.get_session_name())
    except AttributeError:  # connected by Ray Client
        return None
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


def is_remote_client(settings: ClusterSettings | None = None) -> bool:
    """Return whether a sweep uses Ray Client; without settings, whether this process does."""
    if ray.is_initialized() or settings is None:
        return bool(ray.util.client.ray.is_connected())
    return is_client(cluster_address(settings))


def check_paths(config: SweepConfig) -> None:
    """Reject settings whose files would be lost with the driver process on the cluster."""
    errors = []
    remedy = "but the driver runs on the cluster: give an"
    storage = config.storage_path
    if config.remote_storage or not Path(storage.removeprefix("file://")).is_absolute():
        text = f"is {storage!r}, {remedy} absolute path that all its nodes can reach"
        errors.append(ErrorDetail("storage_path", text))
    uri = config.mlflow.tracking_uri if config.mlflow else ""
    if has_relative_path(uri):
        text = f"is {uri!r}, {remedy} MLflow server that the cluster reaches"
        errors.append(ErrorDetail("mlflow.tracking_uri", text))
    if errors:
        raise InvalidSettingsError(errors)


def run_on_cluster(run: Callable[..., _Result], *arguments: Any, **options: Any) -> _Result:
    """Run the driver of a sweep in a process on the cluster and return its result.

    Its output is printed here, an interrupt here interrupts it, and its TuneTfError is raised here.
    """

    def run_without_gpus() -> _Result:
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # a task without GPUs would see all
        return run(*arguments, **options)

    driver = ray.remote(num_cpus=0, max_retries=0, max_calls=1)(run_without_gpus).remote()
    try:
        result: _Result = ray.get(driver)
    except KeyboardInterrupt:
        ray.cancel(driver, force=False)
        ray.wait([driver])
        raise
    except ray.exceptions.RayTaskError as error:
        cause = error.cause
        raise (cause if isinstance(cause, TuneTfError) else error) from None
    return result
