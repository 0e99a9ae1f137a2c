"""Time model of the trials of a search space, fitted to measurements."""

import itertools
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tune_tf.estimate.planning.measure_trials import TrialMeasurements
from tune_tf.estimate.planning.model_profiles import ModelProfile, ModelProfiles
from tune_tf.estimate.planning.schedule_model import TrialCost
from tune_tf.space import flat
from tune_tf.space.frozen import hashable

_TURN_S = 0.06
"""Seconds that Tune, searcher and tracking take between two trials."""

_RESULT_S = 0.003
"""Seconds of overhead of the driver and of Ray per result."""


@dataclass(frozen=True)
class TrialCosts:
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
    process_s: float = 0.0

    def epoch_s(self, config: Mapping[str, Any]) -> float:
        """Return the seconds per iteration of a flat or nested config."""
        values = _features(self._nearest(flat(config)))
        return max(1e-4, sum(w * x for w, x in zip(self.weights, values, strict=True))) + _RESULT_S

    def of(self, config: Mapping[str, Any]) -> TrialCost:
        """Return the cost of a trial of a config."""
        return TrialCost(
            start_s=self.start_s + self.process_s + _TURN_S,
            epoch_s=self.epoch_s(config),
            trace_s=self.trace_s,
            structure=self.structure(config),
        )

    def structure(self, config: Mapping[str, Any]) -> Hashable:
        """Return a key shared by configs with the same traced program; None if none is shared."""
        if not self.profiles.shares:
            return None
        values = flat(config)
        lowest = self.profiles.smallest.config
        return tuple(
            hashable(values.get(path))
            if difference == "value"
            else values.get(path) == flat(lowest).get(path)
            for path, difference in self.profiles.structural.items()
        )

    def _nearest(self, values: Mapping[str, Any]) -> ModelProfile:
        """Return the profiled model whose structure is closest to that of a config."""
        paths = self.profiles.structural

        def distance(profile: ModelProfile) -> float:
            other = flat(profile.config)
            return sum(_apart(values.get(path), other.get(path)) for path in paths)

        return min(self.profiles.known, key=distance)


def fit_costs(
    measured: TrialMeasurements,
    trained: Sequence[ModelProfile],
    profiles: ModelProfiles,
    *,
    process_s: float,
) -> TrialCosts:
    """Fit costs to measurements of trained models, given in the same order.

    ``process_s`` are the seconds to start a process for each trial; 0 if processes are reused.
    """
    seconds = [
        measured.scale * float(np.mean([timing.epoch_s for timing in timings]))
        for timings in measured.timings
    ]
    every = [timing for timings in measured.timings for timing in timings]
    later = [
        timing for index in range(len(trained)) for timing in measured.later_timings(index)
    ] or every
    return TrialCosts(
        profiles,
        _weights([_features(each) for each in trained], seconds),
        start_s=float(np.median([timing.start_s + timing.save_s for timing in later])),
        trace_s=float(np.median([max(0.0, it.first_s - it.epoch_s) for it in every])),
        process_s=process_s,
    )


def _features(profile: ModelProfile) -> tuple[float, float]:
    """Return the features of the time per iteration: relative number of batches, and arithmetic."""
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
        for chosen in map(list, itertools.combinations(range(count), size)):
            scale = np.abs(table[:, chosen]).max(axis=0)  # features differ by orders of magnitude
            if not scale.all():
                continue
            found, *_ = np.linalg.lstsq(table[:, chosen] / scale, np.ones(len(seconds)), rcond=None)
            if (found < 0).any():
                continue
            weights = np.zeros(count)
            weights[chosen] = found / scale
            logs = np.log(table @ weights)
            error, middle = float(logs.std()), float(logs.mean())
            if best is None or error < best[0]:
                best = error, tuple(float(each) for each in weights / np.exp(middle))
    if best is None:
        raise ValueError("cannot fit the measured seconds: all features are 0")
    return best[1]


def _apart(value: Any, other: Any) -> float:
    """Return the distance between two values of a parameter, from 0 to 1."""
    numbers = all(
        isinstance(each, int | float) and not isinstance(each, bool) for each in (value, other)
    )
    if not numbers:
        return float(hashable(value) != hashable(other))
    largest = max(abs(value), abs(other))
    return abs(value - other) / largest if largest else 0.0
