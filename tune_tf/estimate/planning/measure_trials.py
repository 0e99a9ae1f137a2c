"""Measurement of configs in as many processes as the sweep has concurrent trials."""

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ray

from tune_tf.errors import TuneTfError, UnavailableResourcesError, WorkloadError
from tune_tf.estimate.planning.model_profiles import config_text
from tune_tf.estimate.sample_process import (
    PeakMemory,
    ProgressCallback,
    SampleProcess,
    TrialUsage,
    notes_path,
)
from tune_tf.estimate.workload_sample import TrialSample, sample_workload
from tune_tf.sweep.plan import SweepPlan
from tune_tf.trainables import trainable
from tune_tf.workload import Config

_EXPECTED_BYTES = 1.0e9  # of a process with TensorFlow, without the model
_MAX_BATCHES = 40
_ROUND_S = 1.0


@dataclass(frozen=True)
class TrialTiming:
    """Timing of one config in one process.

    Args:
        start_s: Seconds until training: building the model, plus startup in a fresh process.
        first_s: Seconds of the first iteration, which may include tracing.
        epochs_s: Seconds of each further iteration.
    """

    start_s: float
    first_s: float
    epochs_s: tuple[float, ...]
    save_s: float
    checkpoint_bytes: int

    @property
    def epoch_s(self) -> float:
        """Mean seconds of the further iterations."""
        return sum(self.epochs_s) / len(self.epochs_s)


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

    def later_timings(self, index: int) -> list[TrialTiming]:
        """Return the timings of a config, without those that include the start of a process."""
        first = range(index, self.num_slots, len(self.timings))
        return [it for place, it in enumerate(self.timings[index]) if place not in first]


def num_affordable_slots(num_slots: int, available_bytes: float) -> int:
    """Return how many concurrent processes fit into this machine's memory."""
    return max(1, min(num_slots, int(available_bytes / _EXPECTED_BYTES)))


def measure_trials(
    plan: SweepPlan, configs: Sequence[Config], num_slots: int, on_progress: ProgressCallback
) -> TrialMeasurements:
    """Train every config in every slot: all slots concurrently, each in a different order.

    Configs that most need a fresh process come first.

    Raises:
        UnavailableResourcesError: The cluster cannot hold the processes, or memory runs out.
        WorkloadError: A config cannot be trained.
    """
    timings: dict[tuple[int, int], TrialTiming] = {}
    with contextlib.ExitStack() as stack:
        on_progress(f"starting {num_slots} process{'' if num_slots == 1 else 'es'}", 0.0)
        begun = time.perf_counter()
        slots: list[SampleProcess] = []
        for _ in range(num_slots):
            slots.append(_slot(plan, configs[0]))
            stack.callback(slots[-1].end)
        for number in range(len(configs)):
            order = [(number + place) % len(configs) for place in range(num_slots)]
            chosen = [configs[index] for index in order]
            if number:
                on_progress(
                    f"training, round {number + 1} of {len(configs)}", number / len(configs)
                )
            pending = [
                slot.ask("begin", slot.made, dict(config))
                for slot, config in zip(slots, chosen, strict=True)
            ]
            starts = _answers(pending, chosen)
            if not number:
                process_s = time.perf_counter() - begun
            firsts = _ask_all(slots, chosen, "train")
            further = _ask_all(slots, chosen, "train", _ROUND_S)
            saves = _ask_all(slots, chosen, "save")
            for place, index in enumerate(order):
                timings[index, place] = TrialTiming(
                    starts[place],
                    firsts[place].epochs_s[0],
                    further[place].epochs_s,
                    *saves[place],
                )
            if not number:
                usage = _ask_all(slots, chosen, "usage")
                fresh = {index: it.memory for index, it in zip(order, usage, strict=True)}
        used: list[TrialUsage] = _ask_all(slots, [configs[0]] * num_slots, "usage")
    gpus = [each.memory.gpu_bytes for each in used if each.memory.gpu_bytes is not None]
    return TrialMeasurements(
        num_slots=num_slots,
        timings=tuple(
            tuple(timings[index, place] for place in range(num_slots))
            for index in range(len(configs))
        ),
        fresh=fresh,
        grown=PeakMemory(max(each.memory.host_bytes for each in used), max(gpus, default=None)),
        process_s=process_s,
        num_rows=max(each.num_rows for each in used),
        total_rows=max(each.total_rows for each in used),
        left_out_bytes=max(each.left_out_bytes for each in used),
    )


def _slot(plan: SweepPlan, config: Config) -> SampleProcess:
    """Start a process with the resources of a trial."""
    settings, notes = plan.config, notes_path()
    made = trainable(
        sample_workload(plan.workload, TrialSample(_MAX_BATCHES, notes)),
        settings.parallelism,
        resources=plan.resources,
        loop=settings.loop,
        validation=settings.validation,
        seed=settings.seed,
    )
    return SampleProcess(made, dict(config), notes)


def _ask_all(
    slots: Sequence[SampleProcess], configs: Sequence[Config], method: str, *arguments: Any
) -> list[Any]:
    """Call a method of all processes concurrently; return the results."""
    return _answers([slot.ask(method, *arguments) for slot in slots], configs)


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
