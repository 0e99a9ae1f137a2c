"""The devices and threads of this process, fixed before TensorFlow touches them."""

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
"""What CUDA and its libraries take of a card in every process beside TensorFlow's own memory."""

_LEAST_MIB = 256
_QUERY = ("nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits")

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def memory_limit_mib(fraction: float, card_mib: int) -> int:
    """Return the limit of TensorFlow's memory on a card that several trials share.

    ``fraction x card - CONTEXT_MIB``: with all of its trials running, the card is not overdrawn.

    Args:
        fraction: Of the card, between 0 and 1.
        card_mib: The card's memory.

    Raises:
        UnavailableResourcesError: Too little is left to train with.
    """
    limit = int(fraction * card_mib) - CONTEXT_MIB
    if limit < _LEAST_MIB:
        raise UnavailableResourcesError(
            f"the trial reserved {fraction:g} of a GPU with {card_mib} MiB, and CUDA itself takes "
            f"{CONTEXT_MIB} MiB of each share: {limit} MiB are left, at least {_LEAST_MIB} are "
            f"needed; reserve at least {(_LEAST_MIB + CONTEXT_MIB) / card_mib:.2f}"
        )
    return limit


def card_memory_mib(
    *, run: Run = subprocess.run, environment: Mapping[str, str] = os.environ
) -> int:
    """Return the memory of the first GPU that this process may use.

    TensorFlow tells it only once the card is in use, when it is too late for a limit.

    Raises:
        UnavailableResourcesError: The driver does not tell.
    """
    first = environment.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip()
    query = [*_QUERY, *(["--id", first] if first else [])]
    try:
        told = run(query, capture_output=True, text=True, check=True, timeout=30)
        return int(told.stdout.splitlines()[0])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        raise UnavailableResourcesError(
            "the trial reserved a fraction of a GPU, but the size of the card is not known, so its "
            f"share cannot be enforced: `{' '.join(query)}` failed ({error}); mend the driver's "
            "installation, or reserve whole GPUs"
        ) from error


os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


_DRIVER = Path("/proc/driver/nvidia/version")

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Devices:
    """What one process trains on; TensorFlow allows one choice a process.

    Args:
        names: Logical device of each replica, for example ``("GPU:0", "GPU:1")``.
        memory_bytes: What one of them has; None for CPUs, which train on rows where they lie, and
            where the driver does not tell.
    """

    names: tuple[str, ...]
    memory_bytes: int | None = None

    @property
    def num_replicas(self) -> int:
        """Copies of the model."""
        return len(self.names)

    def __str__(self) -> str:
        """Return the devices for a report, with the numbers that the driver has for GPUs."""
        names = ", ".join(self.names)
        cards = os.environ.get("CUDA_VISIBLE_DEVICES")
        return names if self.on_cpu or not cards else f"{names} of cards {cards}"

    def first(self, num_replicas: int) -> "Devices":
        """Return those of the first replicas."""
        return replace(self, names=self.names[:num_replicas])

    @property
    def on_cpu(self) -> bool:
        """Whether the replicas stand on the CPU."""
        return self.names[0].startswith("CPU")


@functools.cache
def _claimed() -> dict[tuple[TrialResources, int], Devices]:
    return {}  # one entry at most


def claim_devices(resources: TrialResources, num_replicas: int) -> Devices:
    """Set threads, hide or grow GPUs, split the CPU into logical devices; once a process.

    A trial without GPUs sees none, also where Ray leaves ``CUDA_VISIBLE_DEVICES`` unset. Whole GPUs
    give memory as it is needed; a fraction of one is a limit of TensorFlow's memory. Without
    GPUs, several replicas are logical CPU devices, so that everything runs everywhere.

    Args:
        resources: What the trial reserved.
        num_replicas: Copies of the model.

    Raises:
        UnavailableResourcesError: Reserved GPUs are not visible to TensorFlow, a fraction of one
            cannot be enforced, there are more replicas than devices, or this process was set up
            for another trial's devices.
    """
    wanted, claimed = (resources, num_replicas), _claimed()
    for first, replicas in set(claimed) - {wanted}:
        raise UnavailableResourcesError(
            f"this process trains on {first} with {replicas} replica(s) and cannot change to "
            f"{resources} with {num_replicas}: TensorFlow fixes devices and threads at its first "
            "operation; run the trial in a fresh process"
        )
    if wanted not in claimed:
        claimed[wanted] = _claim(resources, num_replicas)
    return claimed[wanted]


def _claim(resources: TrialResources, num_replicas: int) -> Devices:
    _configure(lambda: tf.config.threading.set_intra_op_parallelism_threads(resources.cpus))
    _configure(lambda: tf.config.threading.set_inter_op_parallelism_threads(resources.cpus))
    gpus = tf.config.list_physical_devices("GPU")
    if resources.gpus:
        return _claim_gpus(gpus, resources, num_replicas)
    if gpus:
        _configure(lambda: tf.config.set_visible_devices([], "GPU"))
    if num_replicas == 1:  # no operation yet: several workers can be joined only before the first
        return Devices(("CPU:0",))
    _configure(lambda: _split_cpu(num_replicas))
    cpus = tf.config.list_logical_devices("CPU")
    if len(cpus) < num_replicas:
        raise UnavailableResourcesError(
            f"{num_replicas} replicas need {num_replicas} logical CPU devices, but TensorFlow was "
            f"used in this process before and has {len(cpus)}: start the trial in a fresh process"
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
        limit = memory_limit_mib(resources.gpus, card_memory_mib())
        _set_before_use(
            lambda: tf.config.set_logical_device_configuration(
                gpus[0], [tf.config.LogicalDeviceConfiguration(memory_limit=limit)]
            ),
            f"the memory limit of {limit} MiB",
        )
    else:
        limit = _card_memory_if_told()
        for gpu in gpus:
            _configure(functools.partial(tf.config.experimental.set_memory_growth, gpu, True))
    names = tuple(f"GPU:{i}" for i in range(num_replicas))
    return Devices(names, limit and limit * 2**20)


def _card_memory_if_told() -> int | None:
    try:
        return card_memory_mib()
    except UnavailableResourcesError as error:
        _log.info("Rows are kept on GPUs of unknown size: %s", error)
        return None


def _driver() -> str:
    """Return what can be told of the driver without CUDA."""
    try:
        return _DRIVER.read_text().splitlines()[0]
    except (OSError, IndexError):
        return "no NVIDIA driver is loaded"


def _set_before_use(setting: Callable[[], None], what: str) -> None:
    """Apply a setting without which the trial would take what is not its own."""
    try:
        setting()
    except RuntimeError as error:
        raise UnavailableResourcesError(
            f"{what} could not be set: TensorFlow used the GPU in this process before ({error}); "
            "run the trial in a fresh process"
        ) from error


def _split_cpu(parts: int) -> None:
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration() for _ in range(parts)]
    )


def _configure(setting: "functools.partial[None] | object") -> None:
    """Apply a setting; where TensorFlow already runs, keep what it has and say so."""
    try:
        setting()  # type: ignore[operator]
    except RuntimeError as error:
        _log.info("TensorFlow was used before in this process; it keeps its devices: %s", error)
