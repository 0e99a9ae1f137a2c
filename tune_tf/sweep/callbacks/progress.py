"""Progress of a running sweep, as lines of text."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from ray.tune import Callback
from ray.tune.experiment import Trial

from tune_tf.config import SweepConfig
from tune_tf.formatting import duration, printable, value_text
from tune_tf.inspection import SweepView
from tune_tf.outcome import Outcome

STATES = ("running", "pending", "paused", *(outcome.value for outcome in Outcome))
"""States of a trial of a running sweep, in display order."""

_PRINT_EVERY_S: Final = 10.0
_SHARE: Final = 0.01  # of the time, at most, for reading the record of a large sweep


class ProgressLines(Callback):
    """Ray Tune callback that prints a line on the state of a sweep every 10 s, by its record."""

    def __init__(self, config: SweepConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._config = config
        self._clock = clock
        self._every_s = _PRINT_EVERY_S
        self._drawn_s = clock()
        self._taken_s = 0.0  # by reading and drawing

    def on_step_end(self, trials: list[Trial], **info: Any) -> None:
        """Draw at most every so many seconds."""
        begun_s = self._clock()
        every_s = max(self._every_s, self._taken_s / _SHARE)
        if trials and begun_s - self._drawn_s >= every_s:
            storage = trials[0].storage
            folder = Path(storage.experiment_fs_path)  # a sweep may have been moved
            if not folder.is_dir():  # the checkpoints are in a bucket
                folder = self._config.sweeps_path / storage.experiment_dir_name
            self._draw(SweepView.open(folder))
            self._drawn_s, self._taken_s = begun_s, self._clock() - begun_s

    def _draw(self, view: SweepView) -> None:
        sys.stdout.write(f"{printable(f'{self._config.name}: {progress_line(view)}')}\n")
        sys.stdout.flush()


def progress_line(view: SweepView) -> str:
    """Return the state of a running sweep as one line of text."""
    counts, left_s = view.counts, view.left_s
    times = _whole_seconds(view.worked_s)
    times += f", {_whole_seconds(left_s)} left" if left_s is not None else ""
    states = ", ".join(f"{counts[name]} {name}" for name in STATES if name in counts)
    best = "no result yet"
    if view.best is not None and view.best_value is not None:
        metric = view.config.leading_objective.metric
        best = f"best {metric} {value_text(view.best_value)} by {view.best.folder.name}"
    total = view.config.budget.num_samples
    parts = (f"{view.num_ended}/{total} trials, {times}", states, best)
    return "; ".join(filter(None, parts))


def _whole_seconds(seconds: float) -> str:
    return duration(max(0, round(seconds)))
