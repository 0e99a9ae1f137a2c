"""Rule that decides which paused trial goes on, and what a new one would try."""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import numpy as np
from scipy.spatial.distance import cdist

from tune_tf.schedulers.curve_model import CurveModel
from tune_tf.schedulers.gaussian_process import FloatArray
from tune_tf.schedulers.improvement import (
    chance_to_beat,
    expected_improvement,
    improvement_price,
)
from tune_tf.schedulers.unit_space import UnitSpace

_NUM_FIRST: Final = 9
_NUM_CANDIDATES: Final = 75
_NUM_BASES: Final = 8
_NUM_NEAR: Final = 30
_RANDOM_SHARE: Final = 0.05
_MAX_LOSS: Final = 1e150  # its square is finite
_HEDGE_SHARE: Final = 0.05
_GROWTH: Final = 1.05
_MEMORY: Final = 0.9


class ContinuationRule:
    """Decides for each free slot: a paused trial goes on, or a new one begins.

    The first nine trials run to the first rung, the best four of them to the second, three to the
    third, two to each further one. From then on a slot goes to the trial with the largest
    :func:`~tune_tf.schedulers.improvement.improvement_price`, where running trials count as if they
    went on as predicted. A quarter of the slots run trials beyond the first rung while there are
    some with a chance, so that some always end. In 5 % of decisions a paused trial drawn at random
    goes on to its next rung, as losses at first rungs may mislead.

    Args:
        space: The search space.
        iterations: The rungs, ascending; the last is that of a full run.
        seed: Seed of its draws.
    """

    def __init__(self, space: UnitSpace, iterations: Sequence[int], seed: int | None) -> None:
        self._space = space
        self._costs = np.diff([0, *iterations]).astype(float)
        self._rng = np.random.default_rng(seed)
        self._model = CurveModel(len(iterations), space.groups)
        self._ids: dict[str, int] = {}
        self._failed: dict[str, int] = {}
        self._points = np.empty((64, len(space)))
        self._features = np.empty((64, len(space.groups)))
        self._losses = np.full((64, len(iterations)), np.nan)
        self._predicted = np.full(64, np.nan)
        self._num_reports = self._num_fitted = 0
        self._is_started = False
        self._proposal: FloatArray | None = None
        self._expected_price = math.nan
        self._price_ratio = 1.0
        self.chances: dict[str, float] = {}
        """Last predicted chance of each trial that was paused to beat the best full run."""

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes; the model is fitted anew."""
        return self.__dict__ | {"_num_fitted": 0}

    @property
    def best_loss(self) -> float | None:
        """The least loss of a full run; None before the first."""
        ends = self._losses[: len(self._ids), -1]
        return float(np.nanmin(ends)) if np.isfinite(ends).any() else None

    def add(self, trial_id: str, config: Mapping[str, Any]) -> None:
        """Add a trial with its flat config; one that is known is a retry of a failed one."""
        if trial_id in self._ids:
            if (rung := self._failed.pop(trial_id, None)) is not None:
                self._losses[self._ids[trial_id], rung] = np.nan
                self._num_fitted = 0
            return
        row = self._ids[trial_id] = len(self._ids)
        if row == len(self._points):
            self._points, self._features, self._losses, self._predicted = (
                np.concatenate([each, np.full_like(each, np.nan)])
                for each in (self._points, self._features, self._losses, self._predicted)
            )
        self._points[row] = self._space.encode(config)
        self._features[row] = self._space.features(self._points[row : row + 1])[0]
        if self._num_fitted and math.isfinite(self._expected_price):
            price = self._price(self._features[row : row + 1], best=self._best_value())[0]
            ratio = min(price / max(self._expected_price, 1e-300), 1.0)
            self._price_ratio = _MEMORY * self._price_ratio + (1 - _MEMORY) * ratio
        self._proposal, self._expected_price = None, math.nan

    def report(self, trial_id: str, rung: int, loss: float) -> None:
        """Add a trial's loss at a rung; at rungs that it skipped, it is the same."""
        row = self._ids[trial_id]
        first = self._last([row])[0] + 1
        self._losses[row, first : rung + 1] = min(max(loss, -_MAX_LOSS), _MAX_LOSS)
        for each in range(first, rung + 1):
            self._num_reports += 1
            if self._num_fitted:
                self._model.append(self._features[row], self._losses[row], each)
        self._predicted[row] = np.nan
        self._proposal = None

    def fail(self, trial_id: str) -> None:
        """Count a failed trial as the worst at its next rung, if there are others."""
        row = self._ids[trial_id]
        rung = self._last([row])[0] + 1
        if trial_id in self._failed or rung == len(self._costs):
            return
        if math.isfinite(worst := self.worst_loss(rung)):
            self._failed[trial_id] = rung
            self.report(trial_id, rung, worst)

    def worst_loss(self, rung: int) -> float:
        """Return the largest loss at a rung; minus infinity if there is none."""
        return float(np.nanmax(self._losses[: len(self._ids), rung], initial=-math.inf))

    def decide(
        self,
        waiting: Sequence[str],
        running: Collection[str],
        *,
        may_start: bool = True,
        min_chance: float = 0.0,
    ) -> str | None:
        """Return the waiting trial that goes on; None for a new one, or if there is none.

        Args:
            waiting: Paused trials.
            running: Trials that run or are about to.
            may_start: Whether a new trial can begin.
            min_chance: Chance to beat the best full run that a trial needs to go on where a new one
                would be worth more, or cannot begin.
        """
        if not self._is_started:
            chosen, is_needed = self._choose_first(waiting, running)
            if chosen or (is_needed and may_start):
                return chosen
        if not np.isfinite(self._losses[: len(self._ids), 0]).any():
            return None
        if waiting and may_start and self._rng.random() < _HEDGE_SHARE:
            return waiting[int(self._rng.integers(len(waiting)))]
        self._fit()
        sizes = self._model.sizes
        expected_end = self._append_expected(running)
        try:
            if not may_start:
                return self._best_waiting(waiting, expected_end, min_chance)
            return self._decide(waiting, running, expected_end, min_chance)
        finally:
            self._model.truncate(sizes)

    def propose(self, running: Collection[str]) -> dict[str, Any] | None:
        """Return the flat config that a new trial should have; None for a random one."""
        is_first = not self._is_started and len(self._ids) < _NUM_FIRST
        if is_first or not self._num_reports:
            return None
        if self._proposal is None:
            self._fit()
            sizes = self._model.sizes
            best = self._best_value(self._append_expected(running))
            self._proposal = self._best_candidate(best)
            self._model.truncate(sizes)
        return self._space.decode(self._proposal)

    def least_promising(self, waiting: Sequence[str]) -> str:
        """Return the waiting trial with the least chance; of equal ones the latest."""
        self._fit()
        self._predict(waiting)
        return min(reversed(waiting), key=self.chances.__getitem__)

    def _decide(
        self,
        waiting: Sequence[str],
        running: Collection[str],
        expected_end: float,
        min_chance: float,
    ) -> str | None:
        """Return the waiting trial that is worth more than the best new one."""
        best = self._best_value(expected_end)
        means, variances = self._predict(waiting)
        is_long = [self._last([self._ids[each]])[0] >= 0 for each in running]
        if sum(is_long) < (len(running) + 1) // 4:
            improvements = expected_improvement(means, variances.sum(1), best)
            likely = waiting[int(np.argmax(improvements))] if waiting else None
            if likely and self.chances[likely] >= min_chance:
                return likely
        self._proposal = self._best_candidate(best)
        features = self._space.features(self._proposal[None])
        self._expected_price = float(self._price(features, best)[0])
        if not waiting:
            return None
        rows = [self._ids[each] for each in waiting]
        prices = improvement_price(means, variances, self._last(rows), best, self._costs)
        is_better = prices.max() > self._expected_price * self._price_ratio
        return waiting[int(np.argmax(prices))] if is_better else None

    def _best_waiting(
        self, waiting: Sequence[str], expected_end: float, min_chance: float
    ) -> str | None:
        """Return the waiting trial that is worth most among those with a chance."""
        means, variances = self._predict(waiting)
        rows = [self._ids[each] for each in waiting]
        best = self._best_value(expected_end)
        prices = improvement_price(means, variances, self._last(rows), best, self._costs)
        if self.best_loss is not None:
            prices[[self.chances[each] < min_chance for each in waiting]] = -1.0
        return waiting[int(np.argmax(prices))] if prices.max(initial=-1.0) >= 0 else None

    def _predict(self, waiting: Sequence[str]) -> tuple[FloatArray, FloatArray]:
        """Predict the ends of paused trials; note their chances."""
        rows = [self._ids[each] for each in waiting]
        means, variances = self._model.predict(self._features[rows], self._losses[rows])
        self._predicted[rows] = means
        chances = chance_to_beat(means, variances.sum(1), self._best_value())
        self.chances |= zip(waiting, chances.tolist(), strict=True)
        return means, variances

    def _choose_first(
        self, waiting: Sequence[str], running: Collection[str]
    ) -> tuple[str | None, bool]:
        """Return which of the first trials goes on, and whether there are too few of them."""
        top = len(self._costs) - 1
        last = self._last(range(len(self._ids)))
        wanted = [max(_NUM_FIRST // (rung + 1), 2) for rung in range(top + 1)]
        are_all = len(last) >= _NUM_FIRST
        on_the_way = [self._ids[each] for each in running]
        for rung in reversed(range(top)):
            above = (last > rung).sum() + (last[on_the_way] == rung).sum()
            here = [each for each in waiting if last[self._ids[each]] == rung]
            enough = min(wanted[rung], 2 * above + 1)
            is_due = (rung or are_all) and (last >= rung).sum() >= enough
            if here and is_due and above < wanted[rung + 1]:
                return min(here, key=lambda each: self._losses[self._ids[each], rung]), False
        self._is_started = bool((last == top).sum() >= wanted[-1])
        return None, (last >= 0).sum() < _NUM_FIRST

    def _fit(self) -> None:
        """Fit the model anew once a twentieth of the losses is new."""
        if self._num_fitted and self._num_reports < _GROWTH * self._num_fitted + 2:
            return
        known = np.flatnonzero(self._last(range(len(self._ids))) >= 0)
        self._model.fit(self._features[known], self._losses[known], self._rng)
        self._num_fitted = self._num_reports

    def _append_expected(self, running: Collection[str]) -> float:
        """Add to the model what running trials will report; return the best expected end."""
        rows = [self._ids[each] for each in running]
        rungs, top = self._last(rows) + 1, len(self._costs) - 1
        features, losses = self._features[rows], self._losses[rows]
        ends, _ = self._model.predict(features[rungs == top], losses[rungs == top])
        self._model.append_expected(features[rungs <= top], losses[rungs <= top])
        return float(ends.min(initial=math.inf))

    def _best_value(self, expected_end: float = math.inf) -> float:
        """Return the least value of a full run, or else of a prediction, on the model's scale."""
        ends = self._model.scaled(self._losses[: len(self._ids), -1], len(self._costs) - 1)
        if not np.isfinite(ends).any():
            ends = self._predicted[: len(self._ids)]
        if not np.isfinite(ends).any():
            known = np.flatnonzero(self._last(range(len(self._ids))) >= 0)
            ends, _ = self._model.predict(self._features[known], self._losses[known])
        return min(float(np.nanmin(ends)), expected_end)

    def _best_candidate(self, best: float) -> FloatArray:
        """Return the point of the largest expected improvement, near to no trial; some at random.

        Candidates are random ones and ones around the best trials, then ones around the winner.
        """
        space, rng, count = self._space, self._rng, len(self._ids)
        if rng.random() < _RANDOM_SHARE:
            return space.draw(1, rng)[0]
        top = len(self._costs) - 1
        ends = self._model.scaled(self._losses[:count, -1], top)
        values = np.where(np.isfinite(ends), ends, self._predicted[:count])
        bases = [row for row in np.argsort(values)[:_NUM_BASES] if np.isfinite(values[row])]
        candidates = [space.draw(_NUM_CANDIDATES, rng)] + [
            space.perturb(self._points[row], _NUM_CANDIDATES // len(bases), rng) for row in bases
        ]
        winner = self._most_promising(np.concatenate(candidates), best)
        near = space.perturb(winner, _NUM_NEAR, rng)
        return self._most_promising(np.concatenate([winner[None], near]), best)

    def _most_promising(self, points: FloatArray, best: float) -> FloatArray:
        tried = self._space.positions(self._points[: len(self._ids)])
        distances = cdist(self._space.positions(points), tried, "chebyshev").min(axis=1)
        is_new = distances >= 0.25 * len(tried) ** (-1 / max(self._space.num_ranges, 1))
        points = points[is_new] if is_new.any() else points
        means, variances = self._predict_new(self._space.features(points))
        best_point: FloatArray = points[
            int(np.argmax(expected_improvement(means, variances.sum(1), best)))
        ]
        return best_point

    def _predict_new(self, features: FloatArray) -> tuple[FloatArray, FloatArray]:
        return self._model.predict(features, np.full((len(features), len(self._costs)), np.nan))

    def _price(self, features: FloatArray, best: float) -> FloatArray:
        last = np.full(len(features), -1)
        return improvement_price(*self._predict_new(features), last, best, self._costs)

    def _last(self, rows: Sequence[int] | range) -> FloatArray:
        """Return the last rung that each trial has passed; -1 for none."""
        last: FloatArray = np.isfinite(self._losses[list(rows)]).sum(axis=1) - 1
        return last
