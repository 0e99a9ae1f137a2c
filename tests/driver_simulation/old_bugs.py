"""Faults of earlier versions, to be put back: what finds none of them finds nothing.

Each was mended by the commit that its comment names.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from tune_tf.sweep.callbacks.budget_limit import BudgetLimit
from tune_tf.tracking.outcome_tracker import OutcomeTracker
from tune_tf.tune_internals.trial_state import latest_result


def _nothing(*_: Any, **__: Any) -> None:
    """Do nothing."""


def _has_reported(self: OutcomeTracker, trial: Any) -> bool:
    return bool(latest_result(trial))


OLD_BUGS: dict[str, tuple[type, str, Callable[..., Any], int]] = {
    # aebe3f6
    "a trial that is ended before it goes on is not ended in MLflow": (
        OutcomeTracker,
        "_has_started",
        _has_reported,
        543,
    ),
    # 8b87469
    "a resume with nothing left to run does not note how trials ended": (
        OutcomeTracker,
        "_add_earlier_outcomes",
        _nothing,
        7,
    ),
    # 0434b1a
    "a target that was reached before a kill does not end the resumed sweep": (
        BudgetLimit,
        "on_step_begin",
        _nothing,
        242,
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
