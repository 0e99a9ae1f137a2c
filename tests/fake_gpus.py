"""Fake GPUs for tests on machines without one, in this process."""

import functools
import json
import os
import re
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self
from unittest.mock import patch

import tensorflow as tf

_DEVICE = re.compile(r"(?i)\b(cpu|gpu):(\d+)$")
_SMI = """#!{python} -ISs
import json, pathlib, sys
cards = json.loads(pathlib.Path({cards!r}).read_text())
asked = sys.argv[sys.argv.index("--id") + 1] if "--id" in sys.argv else None
found = [each for each in cards if asked in (None, str(each["index"]), each["uuid"])]
fields = next(each for each in sys.argv if each.startswith("--query-gpu=")).split("=")[1]
for each in found:
    print(*(each.get(field, "[N/A]") for field in fields.split(",")), sep=", ")
found or sys.exit("No devices were found")
"""


class FakeGpus:
    """GPUs that TensorFlow and ``nvidia-smi`` report, computed by logical CPUs.

    In a ``with`` block, this process sees the GPUs. ``CUDA_VISIBLE_DEVICES`` is read when
    TensorFlow is first asked for its devices. ``tf.device`` and ``tf.distribute.MirroredStrategy``
    run ``"GPU:i"`` on logical CPU ``i`` and ``"CPU:0"`` on the CPU behind them, so that operations
    without a device run on ``"GPU:0"``, as on a machine with GPUs. Tensors and variables have the
    names of these logical CPUs.

    Args:
        memory_mib: Memory of each GPU in MiB, in the order of ``nvidia-smi``.
        reserved_mib: Part of it that the driver keeps for itself.
    """

    def __init__(self, *memory_mib: int, reserved_mib: int = 0) -> None:
        self._cards = [
            {
                "index": index,
                "uuid": f"GPU-{index:08x}-0000-4000-8000-000000000000",
                "memory.total": total,
                "memory.reserved": reserved_mib,
            }
            for index, total in enumerate(memory_mib)
        ]
        self._undo = ExitStack()

    def __enter__(self) -> Self:
        """Install the GPUs in this process."""
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gpus-")))
            cards, smi = folder / "cards.json", folder / "nvidia-smi"
            cards.write_text(json.dumps(self._cards))
            smi.write_text(_SMI.format(python=sys.executable, cards=str(cards)))
            smi.chmod(smi.stat().st_mode | stat.S_IEXEC)
            search = os.pathsep.join([str(folder), os.environ.get("PATH", os.defpath)])
            stack.enter_context(patch.dict(os.environ, {"PATH": search}))
            stack.enter_context(_Process(tf, self._cards).installed())
            self._undo = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        """Restore this process."""
        self._undo.close()


class _Process:
    """TensorFlow of one process, with fake GPUs."""

    def __init__(self, tf: Any, cards: Sequence[dict[str, Any]]) -> None:
        self._tf, self._cards = tf, cards
        self._config = tf.config
        self._limits: dict[Any, list[Any]] = {}  # logical devices of a physical one
        self._growth: dict[Any, bool] = {}
        self._is_used = False
        self._real = {
            name: getattr(tf.config, name)
            for name in (
                "list_physical_devices",
                "list_logical_devices",
                "get_visible_devices",
                "set_visible_devices",
                "set_logical_device_configuration",
            )
        }
        self._real_device = tf.device
        self._num_cpus = 1
        self._chosen: list[Any] | None = None

    def installed(self) -> ExitStack:
        """Change TensorFlow until the returned stack is closed."""
        stack, tf = ExitStack(), self._tf
        strategy = tf.distribute.MirroredStrategy
        functions: dict[str, Any] = {name: getattr(self, name) for name in self._real}
        for owner in (tf.config, tf.config.experimental):
            for name, function in functions.items():
                if hasattr(owner, name):
                    stack.enter_context(patch.object(owner, name, function))
        for owner, name, new in (
            (tf.config.experimental, "set_memory_growth", self.set_memory_growth),
            (tf.config.experimental, "get_memory_growth", self._growth.__getitem__),
            (tf.config, "get_logical_device_configuration", self._limits.get),
            (tf, "device", self.device),
            (strategy, "__init__", self._mirrored(strategy.__init__)),
        ):
            stack.enter_context(patch.object(owner, name, new))
        return stack

    @functools.cached_property
    def _visible(self) -> tuple[dict[str, Any], ...]:
        """Cards in the order of ``CUDA_VISIBLE_DEVICES``, up to the first unknown name."""
        return tuple(_visible_cards(self._cards, os.environ.get("CUDA_VISIBLE_DEVICES")))

    @functools.cached_property
    def _physical(self) -> tuple[Any, ...]:
        kind = self._config.PhysicalDevice
        return tuple(
            kind(f"/physical_device:GPU:{number}", "GPU") for number in range(len(self._visible))
        )

    @property
    def _gpus(self) -> list[Any]:
        return list(self._physical) if self._chosen is None else self._chosen

    @property
    def _memory_mib(self) -> list[int]:
        """Memory of each logical GPU."""
        sizes = []
        for gpu in self._gpus:
            total = self._visible[self._physical.index(gpu)]["memory.total"]
            sizes += [each.memory_limit for each in self._limits.get(gpu, [])] or [total]
        return sizes

    def list_physical_devices(self, device_type: str | None = None) -> list[Any]:
        return self._listed(self._real["list_physical_devices"], device_type, self._physical)

    def get_visible_devices(self, device_type: str | None = None) -> list[Any]:
        return self._listed(self._real["get_visible_devices"], device_type, self._gpus)

    def _listed(self, real: Any, device_type: str | None, gpus: Sequence[Any]) -> list[Any]:
        others = [] if device_type == "GPU" else real(device_type)
        return [*others, *(gpus if device_type in (None, "GPU") else ())]

    def set_visible_devices(self, devices: Any, device_type: str | None = None) -> None:
        devices = devices if isinstance(devices, list) else [devices]
        gpus = [each for each in devices if each in self._physical]
        if device_type != "CPU" and gpus != self._gpus:
            self._refuse_if_used("Visible devices")
            self._chosen = gpus
        if device_type != "GPU":
            self._real["set_visible_devices"]([each for each in devices if each not in gpus], "CPU")

    def set_memory_growth(self, device: Any, enable: bool) -> None:
        self._refuse_unknown(device)
        if device in self._limits:
            raise ValueError("Cannot set memory growth on device when virtual devices configured")
        if self._growth.get(device) != enable:
            self._refuse_if_used("Physical devices")
        self._growth[device] = enable

    def set_logical_device_configuration(self, device: Any, logical_devices: list[Any]) -> None:
        if device.device_type != "GPU":
            self._num_cpus = len(logical_devices)
            if not self._gpus:
                self._real["set_logical_device_configuration"](device, logical_devices)
            return
        self._refuse_unknown(device)
        if any(each.memory_limit is None for each in logical_devices):
            raise ValueError("Setting memory limit is required for GPU virtual devices")
        if self._limits.get(device) != logical_devices:
            self._refuse_if_used("Virtual devices")
        self._limits[device] = logical_devices

    def list_logical_devices(self, device_type: str | None = None) -> list[Any]:
        num_gpus = self._use()
        if not num_gpus:
            return list(self._real["list_logical_devices"](device_type))
        numbers = {"CPU": self._num_cpus, "GPU": num_gpus}
        return [
            self._config.LogicalDevice(f"/device:{kind}:{number}", kind)
            for kind in ([device_type] if device_type else numbers)
            for number in range(numbers.get(kind, 0))
        ]

    def _refuse_unknown(self, device: Any) -> None:
        if device not in self._physical:
            raise ValueError(f"Unrecognized device: {device!r}")

    def _refuse_if_used(self, what: str) -> None:
        if self._is_used:
            raise RuntimeError(f"{what} cannot be modified after being initialized")

    def _use(self) -> int:
        """Fix the devices at their first use; return the number of logical GPUs."""
        number = len(self._memory_mib)
        if number and not self._is_used:
            cpu = self._real["list_physical_devices"]("CPU")[0]
            needed = number + self._num_cpus
            logical = [self._config.LogicalDeviceConfiguration() for _ in range(needed)]
            try:
                self._real["set_logical_device_configuration"](cpu, logical)
            except RuntimeError:  # TensorFlow was used before the GPUs were installed
                if len(self._real["list_logical_devices"]("CPU")) < needed:
                    raise
        self._is_used = True
        return number

    def device(self, name: Any) -> Any:
        """Return TensorFlow's context of the logical CPU that stands for a device."""
        return self._real_device(self._cpu_of(name))

    def _cpu_of(self, name: Any) -> Any:
        """Return the logical CPU of a device; a name with a job is that of a tensor and stays."""
        found = _DEVICE.search(name) if isinstance(name, str) and "/job:" not in name else None
        num_gpus = self._use() if found else 0
        if found is None or not num_gpus:
            return name
        number = int(found[2])
        if found[1].upper() == "CPU":
            number += num_gpus
        elif number >= num_gpus:
            return name
        return f"{name[: found.start()]}CPU:{number}"

    def _mirrored(self, init: Callable[..., None]) -> Callable[..., None]:
        def init_on_cpus(strategy: Any, devices: Any = None, cross_device_ops: Any = None) -> None:
            if num_gpus := self._use():
                devices = devices or [f"GPU:{number}" for number in range(num_gpus)]
                devices = [self._cpu_of(name) for name in devices]
                # CPUs' own collectives end the process at a second model.
                cross_device_ops = cross_device_ops or self._tf.distribute.ReductionToOneDevice()
            init(strategy, devices, cross_device_ops)

        return init_on_cpus


def _visible_cards(
    cards: Sequence[dict[str, Any]], visible: str | None
) -> Iterator[dict[str, Any]]:
    """Yield the cards that CUDA shows: all, or those named by number or UUID."""
    if visible is None:
        yield from cards
        return
    for name in visible.split(","):
        found = [
            card
            for card in cards
            if name.strip() in (str(card["index"]), card["uuid"])
            or (name.startswith("GPU-") and card["uuid"].startswith(name))
        ]
        if len(found) != 1:
            return
        yield found[0]
