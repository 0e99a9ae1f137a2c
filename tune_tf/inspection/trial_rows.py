"""The trials of a sweep as rows, to be filtered, sorted and written."""

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from tune_tf.errors import InvalidSettingsError, near_ones
from tune_tf.inspection.sweep_view import SweepView
from tune_tf.inspection.trial_filter import TrialFilter
from tune_tf.inspection.trial_view import TrialView
from tune_tf.outcome import is_finite
from tune_tf.space import flat

_CONFIG = "config/"
_SAME = {"started": "began", "state": "outcome", "id": "trial_id"}


@dataclass(frozen=True)
class TrialRows:
    """Trials as rows.

    A row holds ``number``, ``trial_id``, ``outcome``, ``cause``, ``iterations``, ``began`` (a local
    time), ``trained_s``, ``node``, ``mlflow_run_id``, ``feasible``, the config as ``config/...``
    without inactive parameters, and the last metrics. Where a trial has no such value, the key is
    missing. A trial that has not ended has as its outcome what it does: ``running``, ``paused``,
    ``pending`` or ``interrupted``.

    Args:
        sweep: The sweep.
        rows: A row a trial.
    """

    sweep: SweepView
    rows: tuple[dict[str, Any], ...]

    @classmethod
    def of(cls, sweep: SweepView) -> "TrialRows":
        """Return the rows of all trials, in order of number."""
        return cls(sweep, tuple(_row(sweep, trial) for trial in sweep.trials))

    @property
    def fields(self) -> tuple[str, ...]:
        """The keys of the rows: those of every trial, then the config's, then the metrics'."""
        names = dict.fromkeys(name for row in self.rows for name in row)
        return tuple(sorted(names, key=lambda name: _place(name, self.sweep)))

    def where(self, conditions: Iterable[str]) -> "TrialRows":
        """Return the rows that meet all conditions, such as ``outcome=completed``.

        Raises:
            InvalidSettingsError: A text is no condition, or names a field that there is not.
        """
        tests = [TrialFilter.parse(text) for text in conditions]
        named = [(self._field(test.field), test) for test in tests]
        kept = (row for row in self.rows if all(test.holds(row.get(name)) for name, test in named))
        return replace(self, rows=tuple(kept))

    def sorted(self, field: str) -> "TrialRows":
        """Return the rows by a field: of an objective's metric the best first, else ascending.

        Rows without the field come last.

        Raises:
            InvalidSettingsError: There is no such field.
        """
        name = self._field(field)
        modes = {each.metric: each.mode for each in self.sweep.config.objectives}
        sign = -1.0 if modes.get(name) == "max" else 1.0

        def key(row: dict[str, Any]) -> tuple[bool, bool, float, str]:
            value = row.get(name)
            if isinstance(value, int | float) and is_finite(value):
                return False, False, sign * value, ""
            missing = value is None or isinstance(value, float)
            return missing, True, 0.0, str(value)

        return replace(self, rows=tuple(sorted(self.rows, key=key)))

    def limited(self, count: int | None) -> "TrialRows":
        """Return the first rows; all for None."""
        return replace(self, rows=self.rows[:count])

    def to_csv(self) -> str:
        """Return a table with a line of headers; lists and the like as JSON."""
        text = io.StringIO()
        writer = csv.DictWriter(text, self.fields, lineterminator="\n")
        writer.writeheader()
        for row in self.rows:
            writer.writerow({name: _csv_value(value) for name, value in row.items()})
        return text.getvalue()

    def _field(self, name: str) -> str:
        name = _SAME.get(name, name)
        space = self.sweep.config.space.parameters
        metrics = {each.metric for each in self.sweep.config.objectives}
        known = {*_FIRST, *metrics, *self.fields, *(f"{_CONFIG}{path}" for path in space)}
        for candidate in (name, f"{_CONFIG}{name}", f"{_CONFIG}{name.replace('.', '/')}"):
            if candidate in known:
                return candidate
        names = sorted({*known, *(it.removeprefix(_CONFIG) for it in known), *_SAME})
        raise InvalidSettingsError(
            [
                f"trials have no field {name!r}{near_ones(name, names)}; there are "
                f"{', '.join(sorted(known))}"
            ]
        )


_FIRST: Sequence[str] = (
    "number",
    "trial_id",
    "outcome",
    "cause",
    "iterations",
    "began",
    "trained_s",
    "node",
    "mlflow_run_id",
    "feasible",
)


def _row(sweep: SweepView, trial: TrialView) -> dict[str, Any]:
    result = trial.result
    row = {
        "number": trial.number,
        "trial_id": trial.trial_id,
        "outcome": trial.state,
        "cause": result.cause,
        "iterations": result.iterations,
        "began": told_time(trial.began_s),
        "trained_s": trial.trained_s,
        "node": trial.node or None,
        "mlflow_run_id": trial.mlflow_run_id,
        "feasible": result.feasible,
    }
    space = sweep.config.space
    config = flat(space.active(result.config), space.parameters)
    row.update({f"{_CONFIG}{path}": value for path, value in config.items()})
    row.update(result.metrics)
    return {name: value for name, value in row.items() if value is not None}


def told_time(seconds: float | None) -> str | None:
    """Return a time in seconds since 1970 as local time: ``2026-09-21 10:13:20``."""
    if seconds is None:
        return None
    return f"{datetime.fromtimestamp(seconds, UTC).astimezone():%Y-%m-%d %H:%M:%S}"


def _place(name: str, sweep: SweepView) -> tuple[int, int, str]:
    if name in _FIRST:
        return 0, _FIRST.index(name), name
    if name.startswith(_CONFIG):
        paths = list(sweep.config.space.parameters)
        path = name.removeprefix(_CONFIG)
        return 1, paths.index(path) if path in paths else len(paths), name
    metrics = [each.metric for each in sweep.config.objectives]
    return 2, metrics.index(name) if name in metrics else len(metrics), name


def _csv_value(value: Any) -> Any:
    return value if isinstance(value, str | int | float) else json.dumps(value, default=str)
