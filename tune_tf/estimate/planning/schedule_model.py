"""What trials of a sweep spend, in the slots that it has, until a limit ends it."""

import heapq
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tune_tf.config import BudgetSettings
from tune_tf.resources import TrialResources
from tune_tf.simulation import Trace

_GAP = 1.5  # times its own iteration: a trial that reports later than that has waited


@dataclass(frozen=True)
class Limits:
    """Where a sweep ends, whatever its trials would still do. None for no limit.

    Args:
        max_wall_s: Seconds of the sweep.
        max_epochs: Iterations of all trials.
        max_trial_s: Seconds of all trials together.
    """

    max_wall_s: float | None = None
    max_epochs: float | None = None
    max_trial_s: float | None = None

    @classmethod
    def of(
        cls, budget: BudgetSettings, resources: TrialResources, *, begun_s: float = 0.0
    ) -> "Limits":
        """Return the limits that a budget sets: the one place where a key of it becomes one.

        A target and patience rest on values that nobody knows before: they are left out.

        Args:
            budget: The sweep's.
            resources: What a trial reserves.
            begun_s: Seconds of the sweep before its first trial trains.
        """
        time_s = budget.time_budget_s
        hours = [
            limit / each
            for limit, each in (
                (budget.cpu_hours, resources.cpus),
                (budget.gpu_hours, resources.gpus),
            )
            if limit is not None and each
        ]
        return cls(
            max_wall_s=None if time_s is None else max(0.0, time_s - begun_s),
            max_epochs=budget.epochs,
            max_trial_s=min(hours) * 3600 if hours else None,
        )


@dataclass(frozen=True)
class Cost:
    """What a trial takes.

    Args:
        start_s: Seconds until it trains, and between two trials.
        epoch_s: Seconds of an iteration.
        trace_s: Seconds that a structure takes more, the first time that a process meets it.
        structure: Equal for configs that one traced program serves; None for one of its own.
    """

    start_s: float
    epoch_s: float
    trace_s: float
    structure: Hashable


@dataclass(frozen=True)
class Segment:
    """Consecutive iterations of a trial in one slot.

    Args:
        trial: Its number.
        config: Its values.
        epochs: How many.
    """

    trial: int
    config: Mapping[str, Any]
    epochs: int


@dataclass(frozen=True)
class Spent:
    """What a sweep took.

    Args:
        trials: Trials that were started.
        epochs: Iterations of all of them.
        wall_s: Seconds until the last one ended.
        trial_s: Seconds of all trials together.
        structures: Traced programs of the process that has the most of them.
    """

    trials: int
    epochs: int
    wall_s: float
    trial_s: float
    structures: int


def segments_of(trace: Trace, epoch_s: Callable[[Mapping[str, Any]], float]) -> tuple[Segment, ...]:
    """Return the stints of a simulated sweep, in the order in which they begin.

    Args:
        trace: The sweep.
        epoch_s: Takes a config and returns the virtual seconds of an iteration.
    """
    configs = {trial.number: trial.config for trial in trace.trials}
    seconds = {number: epoch_s(config) for number, config in configs.items()}
    open_: dict[int, list[float]] = {}  # by trial: when it began and last reported, and how many
    closed: list[tuple[float, int, int]] = []
    for event in trace.events:
        last = open_.get(event.trial)
        if last is not None and event.time_s - last[1] <= _GAP * seconds[event.trial]:
            last[1:] = [event.time_s, last[2] + 1]
            continue
        if last is not None:
            closed.append((last[0], event.trial, int(last[2])))
        began = event.time_s - seconds[event.trial]
        open_[event.trial] = [began, event.time_s, 1]
    closed += [(it[0], trial, int(it[2])) for trial, it in open_.items()]
    return tuple(Segment(trial, configs[trial], epochs) for _, trial, epochs in sorted(closed))


def stretched(
    sweeps: Sequence[Sequence[Segment]], first: int, growth: float
) -> tuple[Segment, ...]:
    """Return the stints of a sweep of more trials: those of one sweep, then of the next ones.

    Args:
        sweeps: Of equally many trials.
        first: Which of them it begins with.
        growth: Its number of trials over theirs, at least 1.
    """
    found: list[Segment] = []
    before, number = 0, first
    while growth > 0:
        stints = sweeps[number % len(sweeps)]
        num_trials = 1 + max((stint.trial for stint in stints), default=0)
        most = round(num_trials * min(1.0, growth))
        found += [
            replace(stint, trial=before + stint.trial) for stint in stints if stint.trial < most
        ]
        before, number, growth = before + num_trials, number + 1, growth - 1
    return tuple(found)


def spend(
    stints: Sequence[Segment],
    cost_of: Callable[[Mapping[str, Any]], Cost],
    *,
    num_slots: int,
    reuses: bool = True,
    limits: Limits = Limits(),
) -> Spent:
    """Let stints follow each other in slots, each in the one that is free first.

    Args:
        stints: In the order in which they begin.
        cost_of: Takes a config and returns what its trial takes.
        num_slots: Trials at a time.
        reuses: Whether a process runs one trial after another and keeps its programs.
        limits: Where it ends; whole iterations only are counted.
    """
    free = [(0.0, slot) for slot in range(num_slots)]
    programs: list[list[Hashable]] = [[] for _ in range(num_slots)]
    trials: set[int] = set()
    epochs, trial_s, wall_s = 0, 0.0, 0.0
    for stint in stints:
        begin, slot = heapq.heappop(free)
        cost = cost_of(stint.config)
        known = programs[slot] if reuses else []
        before = cost.start_s
        if cost.structure is None or cost.structure not in known:
            before += cost.trace_s
            known.append(cost.structure)
        allowed = _allowed(limits, begin, before, cost.epoch_s, epochs, trial_s)
        if allowed is not None and allowed < 0:
            heapq.heappush(free, (begin, slot))
            break
        done = stint.epochs if allowed is None else min(stint.epochs, allowed)
        took = before + done * cost.epoch_s
        if done < stint.epochs and limits.max_wall_s is not None:
            took = max(took, min(limits.max_wall_s - begin, took + cost.epoch_s))
        trials.add(stint.trial)
        epochs += done
        trial_s += took
        wall_s = max(wall_s, begin + took)
        heapq.heappush(free, (begin + took, slot))
        if done < stint.epochs and begin + took < (limits.max_wall_s or math.inf):
            break  # what ends it is a limit on all trials together
    return Spent(len(trials), epochs, wall_s, trial_s, max(len(it) for it in programs))


def _allowed(
    limits: Limits, begin: float, before: float, epoch_s: float, epochs: int, trial_s: float
) -> int | None:
    """Return how many iterations the limits leave a stint; negative if it cannot even begin."""
    rooms = []
    if limits.max_wall_s is not None:
        left = limits.max_wall_s - begin
        rooms.append(-1.0 if left <= 0 else max(0.0, (left - before) / epoch_s))
    if limits.max_trial_s is not None:
        left = limits.max_trial_s - trial_s
        rooms.append(-1.0 if left <= 0 else max(0.0, (left - before) / epoch_s))
    if limits.max_epochs is not None:
        left = limits.max_epochs - epochs
        rooms.append(-1.0 if left <= 0 else left)
    return int(min(rooms)) if rooms and min(rooms) >= 0 else (-1 if rooms else None)
