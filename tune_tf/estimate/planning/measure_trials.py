"""Measurement of configs in as many processes as the sweep has concurrent trials."""

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ray

from tune_tf.errors import (
    TuneTfError,
    UnavailableResourcesError,
    WorkloadError,
    first_line,
    message_lines,
)
from tune_tf.estimate.planning.model_profiles import config_text
from tune_tf.estimate.sample_process import (
    ProgressCallback,
    SampleProcess,
    TrialUsage,
    new_counts_folder,
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
    """Timing of one config in one process, in seconds.

    ``start_s`` is until training, with the startup of a fresh process; ``first_s`` is that of the
    first iteration, which may include tracing; ``epochs_s`` are those of the others.
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
        first_usages: Usage by index of the config that a fresh process trained; some configs only.
        final_usage: Largest usage of a process at the end, after all configs.
        process_s: Seconds to start a process and its first trial, imports and data included.
        frozen_layers: What the configs reported of shared outputs of frozen layers, if anything.
    """

    num_slots: int
    timings: tuple[tuple[TrialTiming, ...], ...]
    first_usages: dict[int, TrialUsage]
    final_usage: TrialUsage
    process_s: float
    frozen_layers: tuple[str, ...] = ()

    @property
    def scale(self) -> float:
        """Ratio of the time of an iteration on all rows to that of a measured one."""
        usage = self.final_usage
        return usage.total_rows / usage.num_rows if usage.num_rows else 1.0

    def later_timings(self, index: int) -> list[TrialTiming]:
        """Return the timings of a config, without those that include the start of a process."""
        starting = range(index, self.num_slots, len(self.timings))
        return [it for slot, it in enumerate(self.timings[index]) if slot not in starting]


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
    frozen_layers: dict[str, None] = {}
    with contextlib.ExitStack() as stack:
        on_progress(f"starting {num_slots} process{'' if num_slots == 1 else 'es'}", 0.0)
        start = time.perf_counter()
        processes: list[SampleProcess] = []
        for _ in range(num_slots):
            processes.append(_start_process(plan, configs[0]))
            stack.callback(processes[-1].end)
        for number in range(len(configs)):
            order = [(number + slot) % len(configs) for slot in range(num_slots)]
            assigned = [configs[index] for index in order]
            if number:
                on_progress(
                    f"training, round {number + 1} of {len(configs)}", number / len(configs)
                )
            pending = [
                process.ask("begin", process.trainable_class, dict(config))
                for process, config in zip(processes, assigned, strict=True)
            ]
            starts = _answers(pending, assigned)
            if not number:
                process_s = time.perf_counter() - start
            first_epochs = _ask_all(processes, assigned, "train")
            further = _ask_all(processes, assigned, "train", _ROUND_S)
            saves = _ask_all(processes, assigned, "save")
            for slot, index in enumerate(order):
                frozen_layers[further[slot].frozen_layers] = None
                timings[index, slot] = TrialTiming(
                    starts[slot],
                    first_epochs[slot].epochs_s[0],
                    further[slot].epochs_s,
                    *saves[slot],
                )
            usages: list[TrialUsage] = _ask_all(processes, assigned, "usage")
            if not number:
                first_usages = dict(zip(order, usages, strict=True))
    gpu_sizes = [each.gpu_bytes for each in usages if each.gpu_bytes is not None]
    return TrialMeasurements(
        num_slots=num_slots,
        timings=tuple(
            tuple(timings[index, slot] for slot in range(num_slots))
            for index in range(len(configs))
        ),
        first_usages=first_usages,
        final_usage=TrialUsage(
            host_bytes=max(each.host_bytes for each in usages),
            gpu_bytes=max(gpu_sizes, default=None),
            num_rows=max(each.num_rows for each in usages),
            total_rows=max(each.total_rows for each in usages),
            left_out_bytes=max(each.left_out_bytes for each in usages),
            validation_rows=max(each.validation_rows for each in usages),
        ),
        process_s=process_s,
        frozen_layers=tuple(filter(None, frozen_layers)),
    )


def _start_process(plan: SweepPlan, config: Config) -> SampleProcess:
    settings, counts_folder = plan.config, new_counts_folder()
    trainable_class = trainable(
        sample_workload(plan.workload, TrialSample(_MAX_BATCHES, counts_folder)),
        settings.parallelism,
        resources=plan.resources,
        loop=settings.loop,
        seed=settings.seed,
        share_frozen=settings.share_frozen,
    )
    return SampleProcess(trainable_class, dict(config), counts_folder)


def _ask_all(
    processes: Sequence[SampleProcess], configs: Sequence[Config], method: str, *arguments: Any
) -> list[Any]:
    """Call a method of all processes concurrently; return the results."""
    return _answers([process.ask(method, *arguments) for process in processes], configs)


def _answers(pending: Sequence[Any], configs: Sequence[Config]) -> list[Any]:
    results = []
    for reference, config in zip(pending, configs, strict=True):
        try:
            results.append(ray.get(reference))
        except ray.exceptions.RayTaskError as error:
            cause = error.cause
            kind = type(cause).__name__
            if isinstance(cause, UnavailableResourcesError):
                raise cause from None
            if isinstance(cause, MemoryError) or kind == "ResourceExhaustedError":
                raise _out_of_memory_error(config, cause) from error
            said = " ".join(message_lines(str(cause)))
            text = str(cause) if isinstance(cause, TuneTfError) else f"{kind}: {said}"
            raise WorkloadError(
                f"a trial of this space cannot be trained, {config_text(config)}: {text.strip()}"
            ) from error
        except (ray.exceptions.RayActorError, ray.exceptions.OutOfMemoryError) as error:
            raise _out_of_memory_error(config, error) from error
    return results


def _out_of_memory_error(config: Config, cause: BaseException) -> UnavailableResourcesError:
    return UnavailableResourcesError(
        "a trial of this space ran out of memory or its process was killed, "
        f"{config_text(config)}: {first_line(cause)}; narrow the space, "
        "reserve more, or run fewer trials at a time (max_concurrent_trials)"
    )
