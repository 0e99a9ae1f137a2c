"""Devices and threads of a trial's process, set before TensorFlow initializes them."""

import contextlib
import logging
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import tensorflow as tf

from tune_tf.errors import UnavailableResourcesError
from tune_tf.extras import install_command
from tune_tf.resources import TrialResources

CONTEXT_MIB = 768
"""Memory in MiB that CUDA and its libraries use in every process, besides TensorFlow's.

An H100 with driver 580, cuBLAS and cuDNN takes 631.
"""

_LEAST_MIB = 256
_QUERY = (
    "nvidia-smi",
    "--query-gpu=memory.total,memory.reserved",
    "--format=csv,noheader,nounits",
)

_log = logging.getLogger(__name__)
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

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
    num_gpus: int = 1, *, run: Run = subprocess.run, environment: Mapping[str, str] = os.environ
) -> int:
    """Return the memory in MiB of the smallest of the first GPUs that this process may use.

    The driver's own memory is left out. The driver is asked because TensorFlow knows the memory
    only once it is too late for a limit.

    Raises:
        UnavailableResourcesError: The driver does not report the memory.
    """
    visible = environment.get("CUDA_VISIBLE_DEVICES", "")
    names = [name.strip() for name in visible.split(",") if name.strip()][:num_gpus]
    sizes = [size for name in names or [""] for size in _card_memory_mib(name, run)]
    return min(sizes[:num_gpus])


def _card_memory_mib(name: str, run: Run) -> list[int]:
    """Return the memory of a GPU by number or UUID, or of all GPUs without a name."""
    query = [*_QUERY, *(["--id", name] if name else [])]
    try:
        result = run(query, capture_output=True, text=True, check=True, timeout=30)
        sizes = []
        for line in result.stdout.splitlines():
            total, reserved = line.split(",")
            sizes.append(int(total) - int(reserved))
        return sizes or [int("")]
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise UnavailableResourcesError(
            "the trial reserved a fraction of a GPU, but the size of the card is unknown, so its "
            f"share cannot be enforced: `{' '.join(query)}` failed ({error}); repair the driver "
            "installation, or reserve whole GPUs"
        ) from error


@dataclass(frozen=True)
class Devices:
    """Logical devices on which a process trains, for example ``("GPU:0", "GPU:1")``.

    ``memory_bytes`` is that of the smallest one; None if unknown, and for CPUs, which read rows in
    place.
    """

    names: tuple[str, ...]
    memory_bytes: int | None = None

    def __str__(self) -> str:
        """Return the device names, with ``CUDA_VISIBLE_DEVICES`` for GPUs."""
        names = ", ".join(self.names)
        cards = os.environ.get("CUDA_VISIBLE_DEVICES")
        return names if self.on_cpu or not cards else f"{names} of cards {cards}"

    def first(self, count: int) -> "Devices":
        """Return the first devices."""
        return replace(self, names=self.names[:count])

    @property
    def on_cpu(self) -> bool:
        """Whether the devices are CPUs."""
        return self.names[0].startswith("CPU")


_claimed: dict[tuple[TrialResources, int], Devices] = {}  # one entry at most


def claim_devices(resources: TrialResources, num_devices: int) -> Devices:
    """Configure threads, GPU visibility, GPU memory and logical CPUs, once per process.

    A trial without GPUs sees none, even if Ray leaves ``CUDA_VISIBLE_DEVICES`` unset. Whole GPUs
    use memory growth; a fraction of a GPU gets a memory limit. Several devices without GPUs are
    logical CPUs.

    Raises:
        UnavailableResourcesError: Reserved GPUs are not visible to TensorFlow, a fraction of a GPU
            cannot be enforced, there are too few devices, or the process is configured for other
            resources.
    """
    request = (resources, num_devices)
    for other_resources, other_num in set(_claimed) - {request}:
        raise UnavailableResourcesError(
            f"this process trains on {other_resources} with {other_num} device(s) and cannot "
            f"change to {resources} with {num_devices}: TensorFlow fixes devices and threads at "
            "its first operation; run the trial in a fresh process"
        )
    if request not in _claimed:
        _claimed[request] = _claim(resources, num_devices)
    return _claimed[request]


def _claim(resources: TrialResources, num_devices: int) -> Devices:
    with _unless_initialized():
        tf.config.threading.set_intra_op_parallelism_threads(resources.cpus)
        tf.config.threading.set_inter_op_parallelism_threads(resources.cpus)
    if resources.gpus:
        # In the order of nvidia-smi and of Ray; CUDA's own order puts the fastest card first.
        os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    gpus = tf.config.list_physical_devices("GPU")
    if resources.gpus:
        return _claim_gpus(gpus, resources, num_devices)
    if gpus:
        with _unless_initialized():
            tf.config.set_visible_devices([], "GPU")
    if num_devices == 1:  # no operation here: several workers must be joined before the first one
        return Devices(("CPU:0",))
    with _unless_initialized():
        cpu = tf.config.list_physical_devices("CPU")[0]
        logical = [tf.config.LogicalDeviceConfiguration() for _ in range(num_devices)]
        tf.config.set_logical_device_configuration(cpu, logical)
    num_cpus = len(tf.config.list_logical_devices("CPU"))
    if num_cpus < num_devices:
        raise UnavailableResourcesError(
            f"the trial needs {num_devices} logical CPU devices, but TensorFlow was already used "
            f"in this process and has {num_cpus}: start the trial in a fresh process"
        )
    return Devices(tuple(f"CPU:{i}" for i in range(num_devices)))


def _claim_gpus(gpus: list[object], resources: TrialResources, num_devices: int) -> Devices:
    if len(gpus) < num_devices:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        raise UnavailableResourcesError(
            f"the trial reserved {resources.gpus:g} GPU(s) for {num_devices} device(s), but "
            f"TensorFlow sees {len(gpus)} (CUDA_VISIBLE_DEVICES={visible!r}, TensorFlow "
            f"{'with' if tf.test.is_built_with_cuda() else 'WITHOUT'} CUDA): check "
            f"`nvidia-smi` on that node, and {install_command('gpu')} there"
        )
    gpus, others = gpus[:num_devices], gpus[num_devices:]
    if others:  # TensorFlow would take their memory
        with _unless_initialized():
            tf.config.set_visible_devices(gpus, "GPU")
    limit: int | None
    if resources.gpus < 1:
        limit = memory_limit_mib(resources.gpus, gpu_memory_mib())
        logical = tf.config.LogicalDeviceConfiguration(memory_limit=limit)
        try:
            tf.config.set_logical_device_configuration(gpus[0], [logical])
        except RuntimeError as error:
            raise UnavailableResourcesError(
                f"the memory limit of {limit} MiB could not be set: TensorFlow already used the "
                f"GPU in this process ({error}); run the trial in a fresh process"
            ) from error
    else:
        try:
            limit = gpu_memory_mib(num_devices)
        except UnavailableResourcesError as error:
            _log.info("The memory of the GPUs is unknown: %s", error)
            limit = None
        for gpu in gpus:
            with _unless_initialized():
                tf.config.experimental.set_memory_growth(gpu, True)
    names = tuple(f"GPU:{i}" for i in range(num_devices))
    return Devices(names, limit and limit * 2**20)


@contextlib.contextmanager
def _unless_initialized() -> Iterator[None]:
    """Skip settings of TensorFlow, with a log message, if it is already initialized."""
    try:
        yield
    except RuntimeError as error:
        _log.info("TensorFlow is already initialized and keeps its devices: %s", error)
