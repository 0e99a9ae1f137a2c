"""Replay of simulated trials in the slots of a sweep, at costs fitted to measurements."""

import heapq
import itertools
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tune_tf.config import BudgetSettings
from tune_tf.estimate.planning.measure_trials import TrialMeasurements
from tune_tf.estimate.planning.model_profiles import ModelProfile, ModelProfiles
from tune_tf.estimate.planning.simulated_sweeps import Trace
from tune_tf.resources import TrialResources
from tune_tf.space import flatten
from tune_tf.space.frozen import hashable
from tune_tf.space.parameter import is_number

_TURNAROUND_S = 0.06  # that Tune, searcher and tracking take between two trials
_RESULT_S = 0.003  # of overhead of the driver and of Ray per result
_MAX_GAP = 1.5  # iterations between two reports of a trial above which it must have been paused


@dataclass(frozen=True)
class Limits:
    """Limits of a sweep; ``max_epochs`` and ``max_trial_s`` apply to all trials together."""

    max_wall_s: float = math.inf
    max_epochs: float = math.inf
    max_trial_s: float = math.inf

    @classmethod
    def of(
        cls, budget: BudgetSettings, resources: TrialResources, *, begun_s: float = 0.0
    ) -> "Limits":
        """Return the limits set by a budget, minus the seconds before the first trial trains.

        Target and patience are left out: they depend on metric values, which are unknown.
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
            max_wall_s=math.inf if time_s is None else max(0.0, time_s - begun_s),
            max_epochs=math.inf if budget.epochs is None else budget.epochs,
            max_trial_s=3600 * min(hours, default=math.inf),
        )


@dataclass(frozen=True)
class Segment:
    """Consecutive iterations of a trial in one slot; ``epochs`` is their number."""

    trial: int
    config: Mapping[str, Any]
    epochs: int


@dataclass(frozen=True)
class SweepUsage:
    """Trials, epochs and time of a sweep.

    ``trial_s`` are the seconds of all trials together, ``max_programs`` the largest number of
    traced programs in one process.
    """

    trials: int
    epochs: int
    wall_s: float
    trial_s: float
    max_programs: int


def segments_of(trace: Trace, epoch_s: Callable[[Mapping[str, Any]], float]) -> tuple[Segment, ...]:
    """Return the segments of a simulated sweep by start; ``epoch_s`` are virtual seconds."""
    configs = {trial.number: trial.config for trial in trace.trials}
    seconds = {number: epoch_s(config) for number, config in configs.items()}
    spans: list[tuple[float, int, list[float]]] = []  # start, trial, and times of its reports
    current: dict[int, list[float]] = {}
    for event in trace.events:
        times = current.get(event.trial)
        if times is None or event.time_s - times[-1] > _MAX_GAP * seconds[event.trial]:
            times = current[event.trial] = []
            spans.append((event.time_s - seconds[event.trial], event.trial, times))
        times.append(event.time_s)
    return tuple(Segment(trial, configs[trial], len(times)) for _, trial, times in sorted(spans))


def extend_segments(
    sweeps: Sequence[Sequence[Segment]], first: int, growth: float
) -> tuple[Segment, ...]:
    """Return the segments of a sweep with ``growth`` times as many trials as the simulated ones.

    It consists of the segments of the simulated sweeps in turn, from the one with index ``first``.
    """
    extended: list[Segment] = []
    offset, number = 0, first
    while growth > 0:
        segments = sweeps[number % len(sweeps)]
        num_trials = 1 + max((segment.trial for segment in segments), default=0)
        num_added = round(num_trials * min(1.0, growth))
        extended += [
            replace(segment, trial=offset + segment.trial)
            for segment in segments
            if segment.trial < num_added
        ]
        offset, number, growth = offset + num_trials, number + 1, growth - 1
    return tuple(extended)


def simulate_slots(
    segments: Sequence[Segment],
    costs: "CostModel",
    *,
    num_slots: int,
    reuses: bool = True,
    limits: Limits = Limits(),
) -> SweepUsage:
    """Run segments in order of their start, each in the slot that becomes free first.

    Only whole iterations within ``limits`` count. With ``reuses``, a process runs several trials
    and keeps its traced programs.
    """
    free = [(0.0, slot) for slot in range(num_slots)]
    programs: list[list[Hashable]] = [[] for _ in range(num_slots)]
    trials: set[int] = set()
    epochs, trial_s, wall_s = 0, 0.0, 0.0
    for segment in segments:
        begin, slot = heapq.heappop(free)
        epoch_s, structure = costs.epoch_s(segment.config), costs.structure(segment.config)
        traced = programs[slot] if reuses else []
        start_s = costs.turnaround_s
        if structure is None or structure not in traced:
            start_s += costs.trace_s
            traced.append(structure)
        seconds = min(limits.max_wall_s - begin, limits.max_trial_s - trial_s)
        epochs_left = limits.max_epochs - epochs
        if min(seconds, epochs_left) <= 0:
            break
        done = int(min(segment.epochs, epochs_left, max(0.0, (seconds - start_s) / epoch_s)))
        segment_s = start_s + done * epoch_s
        if done < segment.epochs and limits.max_wall_s < math.inf:
            segment_s = max(segment_s, min(limits.max_wall_s - begin, segment_s + epoch_s))
        trials.add(segment.trial)
        epochs += done
        trial_s += segment_s
        wall_s = max(wall_s, begin + segment_s)
        heapq.heappush(free, (begin + segment_s, slot))
        if done < segment.epochs and begin + segment_s < limits.max_wall_s:
            break  # a limit on all trials together was reached
    return SweepUsage(len(trials), epochs, wall_s, trial_s, max(len(it) for it in programs))


@dataclass(frozen=True)
class CostModel:
    """Durations of trials by config.

    Args:
        weights: Seconds per iteration for each feature of :func:`_features`.
        start_s: Seconds to start a trial in a running process.
        trace_s: Extra seconds of the first iteration of a model structure in a process.
        process_s: Seconds to start a process for a trial; 0 if processes are reused.
    """

    profiles: ModelProfiles
    weights: tuple[float, ...]
    start_s: float
    trace_s: float
    process_s: float

    def epoch_s(self, config: Mapping[str, Any]) -> float:
        """Return the seconds per iteration of a flat or nested config."""
        values = _features(self._nearest(flatten(config)))
        return max(1e-4, sum(w * x for w, x in zip(self.weights, values, strict=True))) + _RESULT_S

    @property
    def turnaround_s(self) -> float:
        """Seconds from the end of a trial until the next one in its slot trains."""
        return self.start_s + self.process_s + _TURNAROUND_S

    def structure(self, config: Mapping[str, Any]) -> Hashable:
        """Return a key shared by configs with the same traced program; None if none is shared."""
        if not self.profiles.shares:
            return None
        values = flatten(config)
        lowest = self.profiles.smallest.config
        return tuple(
            hashable(values.get(path))
            if difference == "value"
            else values.get(path) == flatten(lowest).get(path)
            for path, difference in self.profiles.structural.items()
        )

    def _nearest(self, values: Mapping[str, Any]) -> ModelProfile:
        """Return the profiled model whose structure is closest to that of a config."""
        paths = self.profiles.structural

        def distance(profile: ModelProfile) -> float:
            other = flatten(profile.config)
            return sum(_distance(values.get(path), other.get(path)) for path in paths)

        return min(self.profiles.known, key=distance)


def fit_costs(
    measured: TrialMeasurements,
    trained: Sequence[ModelProfile],
    profiles: ModelProfiles,
    *,
    process_s: float,
) -> CostModel:
    """Fit costs to measurements of trained models, given in the same order.

    ``process_s`` are the seconds to start a process for each trial; 0 if processes are reused.
    """
    seconds = [
        measured.scale * float(np.mean([timing.epoch_s for timing in timings]))
        for timings in measured.timings
    ]
    all_timings = [timing for timings in measured.timings for timing in timings]
    later = [
        timing for index in range(len(trained)) for timing in measured.later_timings(index)
    ] or all_timings
    return CostModel(
        profiles,
        _weights([_features(each) for each in trained], seconds),
        start_s=float(np.median([timing.start_s + timing.save_s for timing in later])),
        trace_s=float(np.median([max(0.0, it.first_s - it.epoch_s) for it in all_timings])),
        process_s=process_s,
    )


def _features(profile: ModelProfile) -> tuple[float, float]:
    """Return relative numbers of batches and of multiplications per iteration."""
    return 1 / profile.batch_size, profile.work


def _weights(rows: Sequence[Sequence[float]], seconds: Sequence[float]) -> tuple[float, ...]:
    """Return the non-negative weights with the smallest spread of log(predicted / measured).

    Each subset of features is fitted by least squares of ratios, which underestimates; rescaling by
    the mean log ratio removes that bias.
    """
    table = np.asarray(rows, dtype=float) / np.asarray(seconds, dtype=float)[:, None]
    count = table.shape[1]
    best: tuple[float, tuple[float, ...]] | None = None
    for size in range(1, count + 1):
        for subset in map(list, itertools.combinations(range(count), size)):
            scale = np.abs(table[:, subset]).max(axis=0)  # features differ by orders of magnitude
            if not scale.all():
                continue
            fit, *_ = np.linalg.lstsq(table[:, subset] / scale, np.ones(len(seconds)), rcond=None)
            if (fit < 0).any():
                continue
            weights = np.zeros(count)
            weights[subset] = fit / scale
            logs = np.log(table @ weights)
            if best is None or logs.std() < best[0]:
                best = float(logs.std()), tuple((weights / np.exp(logs.mean())).tolist())
    if best is None:
        raise ValueError("cannot fit the measured seconds: all features are 0")
    return best[1]


def _distance(value: Any, other: Any) -> float:
    """Return the distance between two values of a parameter, from 0 to 1."""
    if not (is_number(value) and is_number(other)):
        return float(hashable(value) != hashable(other))
    largest = max(abs(value), abs(other))
    return abs(value - other) / largest if largest else 0.0
