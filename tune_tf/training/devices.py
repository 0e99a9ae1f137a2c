"""Devices and threads of a trial's process, set before TensorFlow initializes them."""

import functools
import logging
import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import tensorflow as tf

from tune_tf.errors import UnavailableResourcesError
from tune_tf.resources import TrialResources

CONTEXT_MIB = 512
"""Memory in MiB that CUDA and its libraries use in every process, besides TensorFlow's."""

_LEAST_MIB = 256
_QUERY = ("nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits")

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def memory_limit_mib(fraction: float, card_mib: int) -> int:
    """Return TensorFlow's memory limit on a shared GPU: ``fraction * card_mib - CONTEXT_MIB``.

    Raises:
        UnavailableResourcesError: The limit is too small to train.
    """
    limit = int(fraction * card_mib) - CONTEXT_MIB
    if limit < _LEAST_MIB:
        raise UnavailableResourcesError(
            f"the trial reserved {fraction:g} of a GPU with {card_mib} MiB, and CUDA itself takes "
            f"{CONTEXT_MIB} MiB of each share: {limit} MiB are left, at least {_LEAST_MIB} are "
            f"needed; reserve at least {(_LEAST_MIB + CONTEXT_MIB) / card_mib:.2f}"
        )
    return limit


def gpu_memory_mib(
    *, run: Run = subprocess.run, environment: Mapping[str, str] = os.environ
) -> int:
    """Return the memory in MiB of the first GPU that this process may use.

    The driver is asked because TensorFlow knows the memory only once it is too late for a limit.

    Raises:
        UnavailableResourcesError: The driver does not report the memory.
    """
    first = environment.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip()
    query = [*_QUERY, *(["--id", first] if first else [])]
    try:
        done = run(query, capture_output=True, text=True, check=True, timeout=30)
        return int(done.stdout.splitlines()[0])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        raise UnavailableResourcesError(
            "the trial reserved a fraction of a GPU, but the size of the card is unknown, so its "
            f"share cannot be enforced: `{' '.join(query)}` failed ({error}); repair the driver "
            "installation, or reserve whole GPUs"
        ) from error


os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


_DRIVER = Path("/proc/driver/nvidia/version")

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Devices:
    """Devices on which a process trains.

    Args:
        names: Logical device of each replica, for example ``("GPU:0", "GPU:1")``.
        memory_bytes: Memory of one device; None if unknown, and for CPUs, which read rows in place.
    """

    names: tuple[str, ...]
    memory_bytes: int | None = None

    @property
    def num_replicas(self) -> int:
        """Number of model copies."""
        return len(self.names)

    def __str__(self) -> str:
        """Return the device names, with ``CUDA_VISIBLE_DEVICES`` for GPUs."""
        names = ", ".join(self.names)
        cards = os.environ.get("CUDA_VISIBLE_DEVICES")
        return names if self.on_cpu or not cards else f"{names} of cards {cards}"

    def first(self, num_replicas: int) -> "Devices":
        """Return the devices of the first replicas."""
        return replace(self, names=self.names[:num_replicas])

    @property
    def on_cpu(self) -> bool:
        """Whether the replicas are on the CPU."""
        return self.names[0].startswith("CPU")


_claimed: dict[tuple[TrialResources, int], Devices] = {}  # one entry at most


def claim_devices(resources: TrialResources, num_replicas: int) -> Devices:
    """Configure threads, GPU visibility, GPU memory and logical CPUs, once per process.

    A trial without GPUs sees none, even if Ray leaves ``CUDA_VISIBLE_DEVICES`` unset. Whole GPUs
    use memory growth; a fraction of a GPU gets a memory limit. Without GPUs, several replicas run
    on logical CPU devices.

    Raises:
        UnavailableResourcesError: Reserved GPUs are not visible to TensorFlow, a fraction of a GPU
            cannot be enforced, there are more replicas than devices, or the process is configured
            for other resources.
    """
    wanted = (resources, num_replicas)
    for first, replicas in set(_claimed) - {wanted}:
        raise UnavailableResourcesError(
            f"this process trains on {first} with {replicas} replica(s) and cannot change to "
            f"{resources} with {num_replicas}: TensorFlow fixes devices and threads at its first "
            "operation; run the trial in a fresh process"
        )
    if wanted not in _claimed:
        _claimed[wanted] = _claim(resources, num_replicas)
    return _claimed[wanted]


def _claim(resources: TrialResources, num_replicas: int) -> Devices:
    _configure(lambda: tf.config.threading.set_intra_op_parallelism_threads(resources.cpus))
    _configure(lambda: tf.config.threading.set_inter_op_parallelism_threads(resources.cpus))
    gpus = tf.config.list_physical_devices("GPU")
    if resources.gpus:
        return _claim_gpus(gpus, resources, num_replicas)
    if gpus:
        _configure(lambda: tf.config.set_visible_devices([], "GPU"))
    if num_replicas == 1:  # no operation here: several workers must be joined before the first one
        return Devices(("CPU:0",))
    _configure(lambda: _split_cpu(num_replicas))
    cpus = tf.config.list_logical_devices("CPU")
    if len(cpus) < num_replicas:
        raise UnavailableResourcesError(
            f"{num_replicas} replicas need {num_replicas} logical CPU devices, but TensorFlow was "
            f"already used in this process and has {len(cpus)}: start the trial in a fresh process"
        )
    return Devices(tuple(f"CPU:{i}" for i in range(num_replicas)))


def _claim_gpus(gpus: list[object], resources: TrialResources, num_replicas: int) -> Devices:
    if len(gpus) < num_replicas:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        raise UnavailableResourcesError(
            f"the trial reserved {resources.gpus:g} GPU(s) for {num_replicas} replica(s), but "
            f"TensorFlow sees {len(gpus)} (CUDA_VISIBLE_DEVICES={visible!r}, TensorFlow "
            f"{'with' if tf.test.is_built_with_cuda() else 'WITHOUT'} CUDA; {_driver()}): check "
            "`nvidia-smi` on that node and install tune-tf[gpu]"
        )
    limit: int | None
    if resources.gpus < 1:
        limit = memory_limit_mib(resources.gpus, gpu_memory_mib())
        _set_before_use(
            lambda: tf.config.set_logical_device_configuration(
                gpus[0], [tf.config.LogicalDeviceConfiguration(memory_limit=limit)]
            ),
            f"the memory limit of {limit} MiB",
        )
    else:
        limit = _known_card_memory_mib()
        for gpu in gpus:
            _configure(functools.partial(tf.config.experimental.set_memory_growth, gpu, True))
    names = tuple(f"GPU:{i}" for i in range(num_replicas))
    return Devices(names, limit and limit * 2**20)


def _known_card_memory_mib() -> int | None:
    try:
        return gpu_memory_mib()
    except UnavailableResourcesError as error:
        _log.info("The memory of the GPUs is unknown: %s", error)
        return None


def _driver() -> str:
    try:
        return _DRIVER.read_text().splitlines()[0]
    except (OSError, IndexError):
        return "no NVIDIA driver is loaded"


def _set_before_use(setting: Callable[[], None], what: str) -> None:
    """Apply a setting without which a trial would exceed its share."""
    try:
        setting()
    except RuntimeError as error:
        raise UnavailableResourcesError(
            f"{what} could not be set: TensorFlow already used the GPU in this process ({error}); "
            "run the trial in a fresh process"
        ) from error


def _split_cpu(parts: int) -> None:
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration() for _ in range(parts)]
    )


def _configure(setting: Callable[[], None]) -> None:
    """Apply a setting; log if TensorFlow is already initialized."""
    try:
        setting()
    except RuntimeError as error:
        _log.info("TensorFlow is already initialized and keeps its devices: %s", error)
