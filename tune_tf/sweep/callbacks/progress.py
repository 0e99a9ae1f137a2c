"""Progress of a running sweep, as lines of text."""

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
from tune_tf.tune_internals.trial_state import latest_result

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

    def __reduce__(self) -> tuple[Any, ...]:
        """Begin anew in the process that unpickles it, the driver on a remote cluster."""
        return type(self), (self._config,)

    def on_step_end(self, trials: list[Trial], **info: Any) -> None:
        """Draw at most every so many seconds."""
        if self._num_ended_before is None:
            self._num_ended_before = sum(trial.is_finished() for trial in trials)
        now = self._clock()
        if now - self._drawn >= self._every_s:
            self._drawn = now
            self._draw(trials)

    def _draw(self, trials: list[Trial]) -> None:
        sys.stdout.write(f"{printable(f'{self._config.name}: {self._line(trials)}')}\n")
        sys.stdout.flush()

    def _line(self, trials: list[Trial]) -> str:
        counts = Counter(map(trial_state, trials))
        states = ", ".join(f"{counts[name]} {name}" for name in STATES if counts[name])
        num_ended = sum(trial.is_finished() for trial in trials)
        total = self._config.budget.num_samples
        return (
            f"{num_ended}/{total} trials ({states}), {self._times(num_ended)}; {self._best(trials)}"
        )

    def _times(self, num_ended: int) -> str:
        elapsed, budget = self._clock() - self._begun, self._config.budget
        estimates = [budget.time_budget_s - elapsed] if budget.time_budget_s else []
        if new := num_ended - (self._num_ended_before or 0):
            estimates.append(elapsed / new * (budget.num_samples - num_ended))
        text = f"{_whole_seconds(elapsed)} elapsed"
        return f"{text}, at most {_whole_seconds(min(estimates))} left" if estimates else text

    def _best(self, trials: list[Trial]) -> str:
        objective = self._config.leading_objective
        candidates = []
        for trial in trials:
            last = kept_result(latest_result(trial))
            feasible = is_feasible(self._config.constraints, last)
            value = last.get(objective.metric)
            candidates.append(Candidate(trial, Outcome.of_result(last), value, feasible))
        best = best_of(candidates, objective)
        if best is None:
            return "no result yet"
        config = ", ".join(f"{k}={value_text(v)}" for k, v in best.key.config.items())
        return f"best {objective.metric} {value_text(best.value)} by {best.key}: {config}"


def trial_state(trial: Trial) -> str:
    """Return the state of a trial of a running sweep."""
    if trial.status == Trial.ERROR:
        return Outcome.ERROR.value
    if trial.is_finished():
        outcome = Outcome.of_result(latest_result(trial))
        return (outcome or Outcome.COMPLETED).value
    return "running" if trial.status == Trial.RUNNING else "pending"


def _whole_seconds(seconds: float) -> str:
    return duration(max(0, round(seconds)))
