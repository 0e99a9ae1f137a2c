"""MLflow's fluent calls (``mlflow.log_figure`` ...) on a run that they must not end.

``mlflow.start_run(run_id=...)`` sets a run to RUNNING and ends it at its exit, and MLflow has no
public way to make a run the active one and leave its state alone. The list in which it keeps the
active runs of a thread is private; it is touched here and nowhere else.
"""

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

# The integrations that start a run of their own when a model is fitted.
_FLAVORS = (
    "keras",
    "tensorflow",
    "sklearn",
    "xgboost",
    "lightgbm",
    "statsmodels",
    "pytorch",
    "spark",
)


def stop_autologging() -> None:
    """Switch MLflow's autologging off in this process; does nothing where MLflow is not loaded.

    Whatever the user's code has switched on goes off, for all libraries at once or for one, and
    also for libraries that are still to be loaded.
    """
    if "mlflow" not in sys.modules:
        return
    import mlflow

    mlflow.autolog(disable=True, silent=True)
    # What was switched on for one library alone does not heed the call above.
    for flavor in _FLAVORS:
        module = sys.modules.get(f"mlflow.{flavor}")
        autolog = getattr(module, "autolog", None)
        if autolog is not None:
            autolog(disable=True, silent=True)


if TYPE_CHECKING:
    from mlflow.entities import Run

_URI_VARIABLE = "MLFLOW_TRACKING_URI"


@contextlib.contextmanager
def active_run(run: "Run", tracking_uri: str) -> Iterator[None]:
    """Make a run the one that fluent calls of this thread write to, for a while.

    Args:
        run: The run; its status, start and end stay as they are.
        tracking_uri: Store that has it; the process's own is put back afterwards.
    """
    with _TRACKING_URI.set_to(tracking_uri):
        runs = _active_runs()
        if runs is None:
            with _started(run):
                yield
            return
        import mlflow  # a caller has loaded it: only so can there be a run

        entry = mlflow.ActiveRun(run)
        runs.append(entry)
        try:
            yield
        finally:
            # User code may have taken it away itself, or left a run of its own above it.
            runs[:] = [each for each in runs if each is not entry]


def default_store(tracking_uri: str) -> contextlib.AbstractContextManager[None]:
    """Make a store the one of MLflow's calls that name none, for a while.

    Args:
        tracking_uri: The store; the process's own is put back afterwards.
    """
    return _TRACKING_URI.set_to(tracking_uri)


def _active_runs() -> "list[Any] | None":
    """Return the list of this thread's active runs; None where MLflow keeps them otherwise."""
    from mlflow.tracking import fluent

    try:
        runs = getattr(fluent, "_active_run_stack").get()  # noqa: B009  private, and may be gone
    except AttributeError:
        return None
    return runs if isinstance(runs, list) else None


@contextlib.contextmanager
def _started(run: "Run") -> Iterator[None]:
    """Do it by public calls, which set the run's status; it is put back to what it was.

    This is for a version of MLflow that keeps its active runs otherwise. Whoever ends the run in
    the meantime is overruled.
    """
    import mlflow

    before = mlflow.MlflowClient().get_run(run.info.run_id).info.status
    mlflow.start_run(run_id=run.info.run_id, nested=True, log_system_metrics=False)
    try:
        yield
    finally:
        mlflow.end_run(before)


class _TrackingUri:
    """The store of the process's fluent calls, of which there is one for all threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._depth = 0
        self._before: str | None = None
        self._variable: str | None = None

    @contextlib.contextmanager
    def set_to(self, uri: str) -> Iterator[None]:
        """Use another store; the last of those who asked puts the process's own back."""
        import mlflow

        with self._lock:
            if self._depth == 0:
                self._variable = os.environ.get(_URI_VARIABLE)
                self._before = mlflow.get_tracking_uri() if mlflow.is_tracking_uri_set() else None
            self._depth += 1
            mlflow.set_tracking_uri(uri)
        try:
            yield
        finally:
            with self._lock:
                self._depth -= 1
                if self._depth == 0:
                    self._put_back()

    def _put_back(self) -> None:
        import mlflow

        mlflow.set_tracking_uri(self._before)
        # MLflow writes the variable too, for processes that are started.
        if self._variable is None:
            os.environ.pop(_URI_VARIABLE, None)
        else:
            os.environ[_URI_VARIABLE] = self._variable


_TRACKING_URI = _TrackingUri()
