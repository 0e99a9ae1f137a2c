"""Rows of trials: filtering, sorting and CSV."""

import csv
import io
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from tune_tf.errors import InvalidSettingsError, did_you_mean
from tune_tf.formatting import csv_cell
from tune_tf.inspection.sweep_view import SweepView
from tune_tf.inspection.trial_view import TrialView
from tune_tf.outcome import is_finite
from tune_tf.result_keys import LATEST_S
from tune_tf.space.parameter import is_number

_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_CONDITION = re.compile(r"\s*([^<>=!\s]+)\s*(!=|<=|>=|==|=|<|>)\s*(.*?)\s*")
_CONDITION_FORM = "FIELD=VALUE, or with != < <= > >= instead of =, for example 'outcome=completed'"
_CONFIG = "config/"
_GENERAL_FIELDS = (
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


@dataclass(frozen=True)
class TrialRows:
    """Table of trials.

    A row holds general fields such as ``number``, ``outcome`` and ``began`` (a local time), the
    config as ``config/...`` without inactive parameters, and the last metrics. Missing values have
    no key. The outcome of a trial that has not ended is its state: ``running``, ``paused``,
    ``pending`` or ``interrupted``.
    """

    sweep: SweepView
    rows: tuple[dict[str, Any], ...]

    @classmethod
    def of(cls, sweep: SweepView) -> "TrialRows":
        """Return the rows of all trials, by number."""
        return cls(sweep, tuple(_row(sweep, trial) for trial in sweep.trials))

    @property
    def fields(self) -> tuple[str, ...]:
        """Keys of the rows: general ones, then config, then metrics."""
        names = {name for row in self.rows for name in row}
        known = [name for name in self._known_fields if name in names]
        return (*known, *sorted(names.difference(known)))

    @property
    def _known_fields(self) -> tuple[str, ...]:
        """Fields that rows may have besides further metrics, in the order of columns."""
        config = self.sweep.config
        paths = (f"{_CONFIG}{path}" for path in config.space.parameters)
        metrics = (objective.metric for objective in config.objectives)
        return (*_GENERAL_FIELDS, *paths, *metrics)

    def where(self, conditions: Iterable[str]) -> "TrialRows":
        """Return the rows that meet all conditions, such as ``outcome=completed``.

        Raises:
            InvalidSettingsError: A text is not a condition, or a field is unknown.
        """
        filters = [TrialFilter.parse(text) for text in conditions]
        by_field = [(self._field(each.field), each) for each in filters]
        rows = (row for row in self.rows if all(it.holds(row.get(name)) for name, it in by_field))
        return replace(self, rows=tuple(rows))

    def sorted(self, field: str) -> "TrialRows":
        """Sort by a field: objectives best first, others ascending, missing values last.

        Raises:
            InvalidSettingsError: The field is unknown.
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
        """Return CSV with a header line; lists and mappings as JSON."""
        text = io.StringIO()
        writer = csv.DictWriter(text, self.fields, lineterminator="\n")
        writer.writerow({name: csv_cell(name) for name in self.fields})
        for row in self.rows:
            writer.writerow({name: csv_cell(value) for name, value in row.items()})
        return text.getvalue()

    def _field(self, name: str) -> str:
        known = {*self._known_fields, *self.fields}
        for candidate in (name, f"{_CONFIG}{name}", f"{_CONFIG}{name.replace('.', '/')}"):
            if candidate in known:
                return candidate
        names = sorted({*known, *(it.removeprefix(_CONFIG) for it in known)})
        raise InvalidSettingsError(
            f"trials have no field {name!r}{did_you_mean(name, names)}; the fields are "
            f"{', '.join(sorted(known))}"
        )


def _row(sweep: SweepView, trial: TrialView) -> dict[str, Any]:
    values = trial.to_dict() | {"began": local_time(trial.began_s), "node": trial.node or None}
    row = {name: values[name] for name in _GENERAL_FIELDS}
    row.update({f"{_CONFIG}{path}": it for path, it in sweep.active_config(trial).items()})
    row.update(trial.result.metrics)
    return {name: value for name, value in row.items() if value is not None}


def local_time(seconds: float | None) -> str | None:
    """Format seconds since 1970 as local time: ``2026-09-21 10:13:20``."""
    if seconds is None or not 0 <= seconds < LATEST_S:
        return None
    return f"{datetime.fromtimestamp(seconds, UTC).astimezone():%Y-%m-%d %H:%M:%S}"


@dataclass(frozen=True)
class TrialFilter:
    """A comparison of a field with a value, numerical if both are numbers."""

    field: str
    relation: str
    value: str

    @classmethod
    def parse(cls, text: str) -> "TrialFilter":
        """Parse a condition such as ``outcome=completed``, or raise an InvalidSettingsError."""
        match = _CONDITION.fullmatch(text)
        if match is None:
            raise InvalidSettingsError(f"a condition must be {_CONDITION_FORM}, not {text!r}")
        return cls(*match.groups())

    def holds(self, value: Any) -> bool:
        """Return whether a trial's value meets the condition.

        None, for a missing field, meets only ``!=``. Text never meets ``<`` or ``>`` with a number.
        """
        if value is None:
            return self.relation == "!="
        number = _number(self.value)
        if number is not None and is_number(value):
            return _COMPARE[self.relation](value, number)
        if self.relation in ("<", "<=", ">", ">="):
            return number is None and _COMPARE[self.relation](str(value), self.value)
        return _COMPARE[self.relation](str(value).lower(), self.value.lower())


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
