"""Faults to be put into the package: a simulation that finds none of them finds nothing."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import tune_tf.sweep.runner
from tune_tf.schedulers.outcome_mixin import OutcomeMixin
from tune_tf.schedulers.state import ResumeMixin
from tune_tf.sweep.callbacks.budget_limit import BudgetLimit
from tune_tf.tracking.run_content import Curve
from tune_tf.tracking.runs import SweepRuns
from tune_tf.tracking.sweep_progress import SweepProgress


def _none_there(self: SweepRuns, *arguments: Any) -> dict[str, Any]:
    _find(self, *arguments)
    return {}


def _again(self: SweepProgress, trials: Any) -> None:
    self._seen.clear()
    _add(self, trials)


def _every_result(self: Curve, results: Any, last: Any) -> Any:
    return _extended(dataclasses.replace(self, epoch=(0, -1)), results, last)


def _nothing(*_: Any, **__: Any) -> None:
    """Do nothing."""


_find, _add, _extended = SweepRuns.find, SweepProgress.add, Curve.extended

OLD_BUGS: dict[str, tuple[Any, str, Callable[..., Any], int]] = {
    "a view does not ask MLflow which runs there are": (SweepRuns, "find", _none_there, 2),
    "a trial that has ended is counted again": (SweepProgress, "add", _again, 0),
    "an epoch that was repeated has two points": (Curve, "extended", _every_result, 52),
    "what MLflow lacks at the end is forgotten": (
        tune_tf.sweep.runner,
        "close_view",
        lambda view, folder: True,
        0,
    ),
    "a scheduler is asked again about an epoch that is repeated": (
        OutcomeMixin,
        "_earlier_decision",
        _nothing,
        88,
    ),
    "a scheduler's state is not recorded": (ResumeMixin, "changed_state", _nothing, 88),
    "a target that was reached before a kill does not end the resumed sweep": (
        BudgetLimit,
        "_restore",
        _nothing,
        57,
    ),
}

"""By name: what is put in whose place, and the first seed that finds it."""


@contextlib.contextmanager
def put_back(name: str | None) -> Iterator[None]:
    """Put a fault back for a while; none for None."""
    with contextlib.ExitStack() as stack:
        if name is not None:
            owner, attribute, old, _ = OLD_BUGS[name]
            stack.enter_context(mock.patch.object(owner, attribute, old))
        yield
