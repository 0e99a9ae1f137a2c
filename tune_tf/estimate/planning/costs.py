"""What a trial of any config of a space takes, by those that were measured."""

import itertools
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tune_tf.estimate.planning.measure_trials import Measured
from tune_tf.estimate.planning.model_profiles import ModelProfile, ModelProfiles
from tune_tf.estimate.planning.schedule_model import Cost
from tune_tf.space import flat
from tune_tf.space.frozen import hashable

_TURN_S = 0.06
"""Seconds from a trial's end to the next one's start that belong to Tune, searcher and tracking."""

_RESULT_S = 0.003
"""Seconds of the driver and of Ray for a result."""


@dataclass(frozen=True)
class Costs:
    """What trials take.

    Args:
        survey: The models of the space.
        weights: Seconds of an iteration for each of :func:`_features`.
        start_s: Seconds to begin a trial in a process that runs.
        trace_s: Seconds that a structure takes more, the first time that a process meets it.
        process_s: Seconds to start a process for a trial; 0 where processes are reused.
    """

    survey: ModelProfiles
    weights: tuple[float, ...]
    start_s: float
    trace_s: float
    process_s: float = 0.0

    def epoch_s(self, config: Mapping[str, Any]) -> float:
        """Return the seconds of an iteration of a config, flat or nested."""
        values = _features(self._nearest(flat(config)))
        return max(1e-4, sum(w * x for w, x in zip(self.weights, values, strict=True))) + _RESULT_S

    def of(self, config: Mapping[str, Any]) -> Cost:
        """Return what a trial of a config takes."""
        return Cost(
            start_s=self.start_s + self.process_s + _TURN_S,
            epoch_s=self.epoch_s(config),
            trace_s=self.trace_s,
            structure=self.structure(config),
        )

    def structure(self, config: Mapping[str, Any]) -> Hashable:
        """Return what is equal for configs that one traced program serves; None for one alone."""
        if not self.survey.shares:
            return None
        values = flat(config)
        lowest = self.survey.smallest.config
        return tuple(
            hashable(values.get(path))
            if difference == "value"
            else values.get(path) == flat(lowest).get(path)
            for path, difference in self.survey.structural.items()
        )

    def _nearest(self, values: Mapping[str, Any]) -> ModelProfile:
        """Return the built model whose structure is most like that of a config."""
        paths = self.survey.structural

        def distance(facts: ModelProfile) -> float:
            other = flat(facts.config)
            return sum(_apart(values.get(path), other.get(path)) for path in paths)

        return min(self.survey.known, key=distance)


def fitted(
    measured: Measured,
    facts: Sequence[ModelProfile],
    survey: ModelProfiles,
    *,
    process_s: float,
) -> Costs:
    """Return costs that explain what was measured.

    Args:
        measured: Of a few configs.
        facts: Their models, in the same order.
        survey: The models of the space.
        process_s: Seconds to start a process for each trial; 0 where processes are reused.
    """
    seconds = [
        measured.scale * float(np.mean([turn.epoch_s for turn in turns]))
        for turns in measured.turns
    ]
    # The first turn in a process stands for no other: it starts the process.
    later = [turn for place, turn in _turns(measured) if not place]
    starts = [turn.start_s + turn.save_s for turn in later or [t for _, t in _turns(measured)]]
    traces = [
        max(0.0, turn.first_s - turn.epoch_s)
        for turn in (turn for turns in measured.turns for turn in turns)
    ]
    return Costs(
        survey,
        _weights([_features(each) for each in facts], seconds),
        start_s=float(np.median(starts)),
        trace_s=float(np.median(traces)),
        process_s=process_s,
    )


def _turns(measured: Measured) -> list[tuple[bool, Any]]:
    """Return all turns, each with whether it was the first one of its process."""
    num = len(measured.turns)
    return [
        (index == place % num, turn)
        for index, turns in enumerate(measured.turns)
        for place, turn in enumerate(turns)
    ]


def _features(facts: ModelProfile) -> tuple[float, float]:
    """Return what the time of an epoch grows with: the number of batches, and the arithmetic."""
    return 1 / facts.batch_size, facts.work


def _weights(rows: Sequence[Sequence[float]], seconds: Sequence[float]) -> tuple[float, ...]:
    """Return weights of at least 0 that explain the seconds best, by ratio.

    Too much and too little count alike: least squares of ratios alone would lean to too little.
    """
    table = np.asarray(rows, dtype=float) / np.asarray(seconds, dtype=float)[:, None]
    count = table.shape[1]
    best: tuple[float, tuple[float, ...]] | None = None
    for size in range(1, count + 1):
        for chosen in map(list, itertools.combinations(range(count), size)):
            scale = np.abs(table[:, chosen]).max(axis=0)  # they differ by orders of magnitude
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
        raise ValueError("nothing explains the seconds: no feature is above 0")
    return best[1]


def _apart(value: Any, other: Any) -> float:
    """Return how far two values of a parameter are apart, at most 1."""
    numbers = all(
        isinstance(each, int | float) and not isinstance(each, bool) for each in (value, other)
    )
    if not numbers:
        return float(hashable(value) != hashable(other))
    largest = max(abs(value), abs(other))
    return abs(value - other) / largest if largest else 0.0
