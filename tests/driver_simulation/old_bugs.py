"""Faults of earlier versions, to be put back: what finds none of them finds nothing.

Each was mended by the commit that its comment names.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from tune_tf.tracking.runs import SweepRuns
from tune_tf.tracking.sweep_progress import SweepProgress


def _none_there(self: SweepRuns, dataset: Any) -> dict[str, Any]:
    _find(self, dataset)
    return {}


def _again(self: SweepProgress, trials: Any) -> None:
    self._seen.clear()
    _add(self, trials)


_find, _add = SweepRuns.find, SweepProgress.add

OLD_BUGS: dict[str, tuple[type, str, Callable[..., Any], int]] = {
    "a view does not ask MLflow which runs there are": (SweepRuns, "find", _none_there, 0),
    "a trial that has ended is counted again": (SweepProgress, "add", _again, 0),
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
