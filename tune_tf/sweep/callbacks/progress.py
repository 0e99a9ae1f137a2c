"""Progress of a running sweep, as lines of text."""

import math
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from ray.tune import Callback
from ray.tune.experiment import Trial

from tune_tf.config import SweepConfig
from tune_tf.constraint import is_feasible
from tune_tf.formatting import duration, printable, value_text
from tune_tf.outcome import Outcome
from tune_tf.ranking import Candidate, best_of, kept_result
from tune_tf.tune_internals.trial_state import EndedTrials, latest_result

STATES = ("running", "pending", "paused", *(outcome.value for outcome in Outcome))
"""States of a trial of a running sweep, in display order."""

_PRINT_EVERY_S = 10.0


class ProgressLines(Callback):
    """Ray Tune callback that prints a line on the state of a sweep every 10 s."""

    def __init__(self, config: SweepConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._config = config
        self._clock = clock
        self._begun = self._drawn = clock()
        self._every_s = _PRINT_EVERY_S
        self._num_ended_before: int | None = None
        self._ends = EndedTrials()
        self._ended = Counter[str]()  # trials by state
        self._best_ended: list[Candidate[Trial]] = []  # one at most

    def on_step_end(self, trials: list[Trial], **info: Any) -> None:
        """Draw at most every so many seconds."""
        for trial in self._ends.take(trials):
            self._add_ended(trial)
        if self._num_ended_before is None:
            self._num_ended_before = self._ended.total()
        now = self._clock()
        if now - self._drawn >= self._every_s:
            self._drawn = now
            self._draw()

    def _add_ended(self, trial: Trial) -> None:
        candidate = self._candidate(trial)
        self._ended[trial_state(trial)] += 1
        best = best_of([*self._best_ended, candidate], self._config.leading_objective)
        self._best_ended = [best] if best else []

    def _candidate(self, trial: Trial) -> Candidate[Trial]:
        last = kept_result(latest_result(trial))
        value = last.get(self._config.leading_objective.metric, math.nan)
        feasible = is_feasible(self._config.constraints, last)
        return Candidate(trial, Outcome.of_result(last), value, feasible)

    def _draw(self) -> None:
        sys.stdout.write(f"{printable(f'{self._config.name}: {self._line()}')}\n")
        sys.stdout.flush()

    def _counts(self) -> Counter[str]:
        return self._ended + Counter(map(trial_state, self._ends.unfinished))

    def _line(self) -> str:
        counts, total = self._counts(), self._config.budget.num_samples
        states = ", ".join(f"{counts[name]} {name}" for name in STATES if counts[name])
        parts = (f"{self._ended.total()}/{total} trials, {self._times()}", states, self._best())
        return "; ".join(filter(None, parts))

    def _times(self) -> str:
        elapsed, budget = self._clock() - self._begun, self._config.budget
        num_ended = self._ended.total()
        estimates = [budget.time_budget_s - elapsed] if budget.time_budget_s else []
        if new := num_ended - (self._num_ended_before or 0):
            estimates.append(elapsed / new * (budget.num_samples - num_ended))
        text = _whole_seconds(elapsed)
        return f"{text}, {_whole_seconds(min(estimates))} left" if estimates else text

    def _best(self) -> str:
        objective = self._config.leading_objective
        running = map(self._candidate, self._ends.unfinished)
        best = best_of([*self._best_ended, *running], objective)
        if best is None:
            return "no result yet"
        return f"best {objective.metric} {value_text(best.value)} by {best.key}"


def trial_state(trial: Trial) -> str:
    """Return the state of a trial of a running sweep."""
    if trial.status == Trial.ERROR:
        return Outcome.ERROR.value
    if trial.is_finished():
        outcome = Outcome.of_result(latest_result(trial))
        return (outcome or Outcome.COMPLETED).value
    return {Trial.RUNNING: "running", Trial.PAUSED: "paused"}.get(trial.status, "pending")


def _whole_seconds(seconds: float) -> str:
    return duration(max(0, round(seconds)))
