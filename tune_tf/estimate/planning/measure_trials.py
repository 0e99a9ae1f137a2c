"""Measurement of configs in as many processes as the sweep has concurrent trials."""

import contextlib
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import ray

from tune_tf.errors import TuneTfError, UnavailableResourcesError, WorkloadError
from tune_tf.estimate.planning.model_profiles import config_text
from tune_tf.estimate.planning.trial_actor import PeakMemory, TrialActor, TrialTiming, TrialUsage
from tune_tf.estimate.scaling.probe import ScalingProbe, TrainableClass
from tune_tf.workload import Config

_EXPECTED_BYTES = 1.0e9  # of a process with TensorFlow, without the model


@dataclass(frozen=True)
class TrialMeasurements:
    """Measurements of configs in the slots of a sweep.

    Args:
        num_slots: Number of concurrent processes.
        timings: Timings by config and slot.
        fresh: Peak memory by index of the config that a fresh process trained; some configs only.
        grown: Peak memory of the processes at the end, after all configs.
        process_s: Seconds to start a process and its first trial, imports and data included.
        num_rows: Training rows used; 0 if unknown.
        left_out_bytes: Bytes of the data that a real trial holds but the sample omits.
    """

    num_slots: int
    timings: tuple[tuple[TrialTiming, ...], ...]
    fresh: dict[int, PeakMemory]
    grown: PeakMemory
    process_s: float
    num_rows: int
    total_rows: int
    left_out_bytes: int

    @property
    def scale(self) -> float:
        """Ratio of the time of an iteration on all rows to that of a measured one."""
        return self.total_rows / self.num_rows if self.num_rows else 1.0


def num_affordable_slots(num_slots: int, available_bytes: float | None = None) -> int:
    """Return how many concurrent processes fit into this machine's memory."""
    if available_bytes is None:
        available_bytes = float(psutil.virtual_memory().available)
    return max(1, min(num_slots, int(available_bytes / _EXPECTED_BYTES)))


def measure_trials(
    make: Callable[[str], TrainableClass],
    configs: Sequence[Config],
    num_slots: int,
    *,
    round_s: float,
    meanwhile: Callable[[], object] = lambda: None,
    on_progress: Callable[[str, float], None] = lambda what, done: None,
) -> TrialMeasurements:
    """Train every config in every slot: all slots concurrently, each in a different order.

    Args:
        make: Function that takes a folder for notes and returns a Trainable class.
        configs: Configs to train, those that most need a fresh process first.
        num_slots: Number of concurrent processes.
        round_s: Seconds of further iterations per config.
        meanwhile: Called while the processes start, for work that a sweep does at that time.
        on_progress: Called with a description of the current step and the share done, 0 to 1.

    Raises:
        UnavailableResourcesError: The cluster cannot hold the processes, or memory runs out.
        WorkloadError: A config cannot be trained.
    """
    with contextlib.ExitStack() as stack:
        on_progress(f"starting {num_slots} process{'' if num_slots == 1 else 'es'}", 0.0)
        begun = time.perf_counter()
        slots = []
        for _ in range(num_slots):
            slots.append(_slot(make, configs[0]))
            stack.callback(slots[-1].end)
        timings: dict[tuple[int, int], TrialTiming] = {}
        fresh: dict[int, PeakMemory] = {}
        process_s = 0.0
        for number in range(len(configs)):
            order = [(number + place) % len(configs) for place in range(num_slots)]
            chosen = [configs[index] for index in order]
            if number:
                on_progress(
                    f"training, round {number + 1} of {len(configs)}", number / len(configs)
                )
            pending = [
                slot.asked("begin", dict(config))
                for slot, config in zip(slots, chosen, strict=True)
            ]
            if not number:
                meanwhile()
            starts = _answers(pending, chosen)
            if not number:
                process_s = time.perf_counter() - begun
            for place, timing in enumerate(_train(slots, chosen, starts, round_s)):
                timings[order[place], place] = timing
            if not number:
                first = _ask_all(slots, chosen, "noted")
                fresh = {index: it.memory for index, it in zip(order, first, strict=True)}
        noted: list[TrialUsage] = _ask_all(slots, [configs[0]] * num_slots, "noted")
    return TrialMeasurements(
        num_slots=num_slots,
        timings=tuple(
            tuple(timings[index, place] for place in range(num_slots))
            for index in range(len(configs))
        ),
        fresh=fresh,
        grown=_max_memory([each.memory for each in noted]),
        process_s=process_s,
        num_rows=max(each.num_rows for each in noted),
        total_rows=max(each.total_rows for each in noted),
        left_out_bytes=max(each.left_out_bytes for each in noted),
    )


def _slot(make: Callable[[str], TrainableClass], config: Config) -> ScalingProbe:
    """Start a process with the resources of a trial."""
    notes = str(Path(tempfile.gettempdir(), f"tune-tf-plan-{uuid.uuid4().hex}"))
    made = make(notes)
    return ScalingProbe(made, dict(config), TrialActor, (made, notes))


def _train(
    slots: Sequence[ScalingProbe],
    configs: Sequence[Config],
    starts: Sequence[float],
    round_s: float,
) -> list[TrialTiming]:
    """Train a config in each process concurrently, after ``begin``."""
    firsts = _ask_all(slots, configs, "first")
    furthers = _ask_all(slots, configs, "further", round_s)
    saves = _ask_all(slots, configs, "save")
    each = zip(starts, firsts, furthers, saves, strict=True)
    return [TrialTiming(start, first, further, *save) for start, first, further, save in each]


def _max_memory(memory: Sequence[PeakMemory]) -> PeakMemory:
    host = max((each.host_bytes for each in memory), default=0)
    gpus = [each.gpu_bytes for each in memory if each.gpu_bytes is not None]
    return PeakMemory(host, max(gpus, default=None))


def _ask_all(
    slots: Sequence[ScalingProbe], configs: Sequence[Config], method: str, *arguments: Any
) -> list[Any]:
    """Call a method of all processes concurrently; return the results."""
    return _answers([slot.asked(method, *arguments) for slot in slots], configs)


def _answers(pending: Sequence[Any], configs: Sequence[Config]) -> list[Any]:
    found = []
    for reference, config in zip(pending, configs, strict=True):
        try:
            found.append(ray.get(reference))
        except ray.exceptions.RayTaskError as error:
            cause = error.cause
            if isinstance(cause, UnavailableResourcesError):
                raise cause from None
            if _is_out_of_memory(cause):
                raise _too_large(config, cause) from error
            text = (
                str(cause) if isinstance(cause, TuneTfError) else f"{type(cause).__name__}: {cause}"
            )
            raise WorkloadError(
                f"a trial of this space cannot be trained, {config_text(config)}: {text.strip()}"
            ) from error
        except (ray.exceptions.RayActorError, ray.exceptions.OutOfMemoryError) as error:
            raise _too_large(config, error) from error
    return found


def _is_out_of_memory(cause: BaseException) -> bool:
    return isinstance(cause, MemoryError) or type(cause).__name__ == "ResourceExhaustedError"


def _too_large(config: Config, cause: BaseException) -> UnavailableResourcesError:
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    return UnavailableResourcesError(
        "a trial of this space ran out of memory or its process was killed, "
        f"{config_text(config)}: {lines[0] if lines else type(cause).__name__}; narrow the space, "
        "reserve more, or run fewer trials at a time (max_concurrent_trials)"
    )
