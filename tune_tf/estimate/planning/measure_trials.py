"""Measures configs in as many processes at a time as the sweep will run trials."""

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
from tune_tf.estimate.planning.model_profiles import config_text as told_config
from tune_tf.estimate.planning.trial_actor import Memory, Noted, TrialActor, Turn
from tune_tf.estimate.scaling.probe import ScalingProbe, TrainableClass
from tune_tf.workload import Config

_EXPECTED_BYTES = 1.0e9  # of a process with TensorFlow, before anything is known of the model


@dataclass(frozen=True)
class Measured:
    """What was measured in the slots of a sweep.

    Args:
        num_slots: Processes that trained at a time.
        turns: By config, what came of it in each slot.
        fresh: By config, what the processes took that trained it first; of some configs only.
        grown: What the processes took at the end, after all configs.
        process_s: Seconds from asking for a process to its answer, and to load what it needs.
        num_rows: Training rows that were trained; 0 where they have no number.
        total_rows: Training rows that there are.
        left_out_bytes: Of data that a trial holds, and that was left out.
    """

    num_slots: int
    turns: tuple[tuple[Turn, ...], ...]
    fresh: dict[int, Memory]
    grown: Memory
    process_s: float
    num_rows: int
    total_rows: int
    left_out_bytes: int

    @property
    def scale(self) -> float:
        """How many times longer an iteration on all rows takes."""
        return self.total_rows / self.num_rows if self.num_rows else 1.0


def affordable(num_slots: int, available_bytes: float | None = None) -> int:
    """Return how many processes can be started together without filling this machine's memory."""
    if available_bytes is None:
        available_bytes = float(psutil.virtual_memory().available)
    return max(1, min(num_slots, int(available_bytes / _EXPECTED_BYTES)))


def measure(
    make: Callable[[str], TrainableClass],
    configs: Sequence[Config],
    num_slots: int,
    *,
    round_s: float,
    meanwhile: Callable[[], object] = lambda: None,
    tell: Callable[[str, float], None] = lambda what, done: None,
) -> Measured:
    """Train every config in every slot, all slots at a time and each in another order.

    Args:
        make: Takes a folder for notes and returns the Trainable.
        configs: What to train, those first that need a fresh process most.
        num_slots: Processes at a time.
        round_s: Seconds of further iterations of each config.
        meanwhile: Called once the processes have been asked for, as a sweep has other things to
            do as well while they start.
        tell: Told what goes on, and how much of all is done, from 0 to 1.

    Raises:
        UnavailableResourcesError: There is no room for the processes, or a config needs more memory
            than there is.
        WorkloadError: A config cannot be trained.
    """
    with contextlib.ExitStack() as stack:
        tell(f"starting {num_slots} process{'' if num_slots == 1 else 'es'}", 0.0)
        begun = time.perf_counter()
        slots = []
        for _ in range(num_slots):
            slots.append(_slot(make, configs[0]))
            stack.callback(slots[-1].end)
        turns: dict[tuple[int, int], Turn] = {}
        fresh: dict[int, Memory] = {}
        process_s = 0.0
        for number in range(len(configs)):
            order = [(number + place) % len(configs) for place in range(num_slots)]
            chosen = [configs[index] for index in order]
            if number:
                tell(f"training, round {number + 1} of {len(configs)}", number / len(configs))
            pending = [
                slot.asked("begin", dict(config))
                for slot, config in zip(slots, chosen, strict=True)
            ]
            if not number:
                meanwhile()
            starts = _answers(pending, chosen)
            if not number:
                process_s = time.perf_counter() - begun
            for place, turn in enumerate(_trained(slots, chosen, starts, round_s)):
                turns[order[place], place] = turn
            if not number:
                first = _asked(slots, chosen, "noted")
                fresh = {index: it.memory for index, it in zip(order, first, strict=True)}
        noted: list[Noted] = _asked(slots, [configs[0]] * num_slots, "noted")
    return Measured(
        num_slots=num_slots,
        turns=tuple(
            tuple(turns[index, place] for place in range(num_slots))
            for index in range(len(configs))
        ),
        fresh=fresh,
        grown=_most([each.memory for each in noted]),
        process_s=process_s,
        num_rows=max(each.num_rows for each in noted),
        total_rows=max(each.total_rows for each in noted),
        left_out_bytes=max(each.left_out_bytes for each in noted),
    )


def _slot(make: Callable[[str], TrainableClass], config: Config) -> ScalingProbe:
    """Start a process with what a trial reserves."""
    notes = str(Path(tempfile.gettempdir(), f"tune-tf-plan-{uuid.uuid4().hex}"))
    made = make(notes)
    return ScalingProbe(made, dict(config), TrialActor, (made, notes))


def _trained(
    slots: Sequence[ScalingProbe],
    configs: Sequence[Config],
    starts: Sequence[float],
    round_s: float,
) -> list[Turn]:
    """Train a config in each process that has begun it, all at the same time."""
    firsts = _asked(slots, configs, "first")
    furthers = _asked(slots, configs, "further", round_s)
    saves = _asked(slots, configs, "save")
    each = zip(starts, firsts, furthers, saves, strict=True)
    return [Turn(start, first, further, *save) for start, first, further, save in each]


def _most(memory: Sequence[Memory]) -> Memory:
    host = max((each.host_bytes for each in memory), default=0)
    gpus = [each.gpu_bytes for each in memory if each.gpu_bytes is not None]
    return Memory(host, max(gpus, default=None))


def _asked(
    slots: Sequence[ScalingProbe], configs: Sequence[Config], method: str, *arguments: Any
) -> list[Any]:
    """Ask all processes at the same time; return their answers."""
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
                f"a trial of this space cannot be trained, {told_config(config)}: {text.strip()}"
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
        f"{told_config(config)}: {lines[0] if lines else type(cause).__name__}; narrow the space, "
        "reserve more, or run fewer trials at a time (max_concurrent_trials)"
    )
