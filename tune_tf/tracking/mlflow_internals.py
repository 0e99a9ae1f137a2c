"""State of MLflow's fluent API (``mlflow.log_figure`` ...) in this process, partly private.

``mlflow.start_run(run_id=...)`` sets a run to RUNNING and ends it at its exit; MLflow has no public
way to activate a run without changing its status.
"""

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlflow.entities import Run

_URI_VARIABLE = "MLFLOW_TRACKING_URI"


@dataclass
class _ReplacedUri:
    """Tracking URI of the process before the first of the contexts that replace it."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    depth: int = 0  # number of contexts
    uri: str | None = None
    variable: str | None = None  # value in the environment


_REPLACED_URI = _ReplacedUri()


def stop_autologging() -> None:
    """Disable MLflow's autologging in this process, for each library, if MLflow is loaded."""
    if "mlflow" not in sys.modules:
        return
    import mlflow

    mlflow.autolog(disable=True, silent=True)
    # Autologging enabled for one library ignores the call above.
    for name, module in list(sys.modules.items()):
        if name.startswith("mlflow.") and hasattr(module, "autolog"):
            module.autolog(disable=True, silent=True)


@contextlib.contextmanager
def active_run(run: "Run", tracking_uri: str) -> Iterator[None]:
    """Activate a run for the fluent calls of this thread, without changing its status.

    The tracking URI of the process is restored afterwards.
    """
    with default_tracking_uri(tracking_uri):
        runs = _active_runs()
        if runs is None:
            with _started(run):
                yield
            return
        import mlflow  # already loaded, since a run exists

        active = mlflow.ActiveRun(run)
        runs.append(active)
        try:
            yield
        finally:
            # User code may have removed the run, or left another one above it.
            runs[:] = [each for each in runs if each is not active]


@contextlib.contextmanager
def default_tracking_uri(tracking_uri: str) -> Iterator[None]:
    """Replace the tracking URI of this process until the last such context ends."""
    import mlflow

    replaced = _REPLACED_URI
    with replaced.lock:
        if replaced.depth == 0:
            replaced.variable = os.environ.get(_URI_VARIABLE)
            replaced.uri = mlflow.get_tracking_uri() if mlflow.is_tracking_uri_set() else None
        replaced.depth += 1
        mlflow.set_tracking_uri(tracking_uri)
    try:
        yield
    finally:
        with replaced.lock:
            replaced.depth -= 1
            if replaced.depth == 0:
                mlflow.set_tracking_uri(replaced.uri)
                # MLflow sets the variable too, for child processes.
                os.environ.pop(_URI_VARIABLE, None)
                if replaced.variable is not None:
                    os.environ[_URI_VARIABLE] = replaced.variable


def _active_runs() -> "list[Any] | None":
    """Return this thread's stack of active runs; None if MLflow keeps it elsewhere."""
    from mlflow.tracking import fluent

    try:
        runs = getattr(fluent, "_active_run_stack").get()  # noqa: B009  private, and may be gone
    except AttributeError:
        return None
    return runs if isinstance(runs, list) else None


@contextlib.contextmanager
def _started(run: "Run") -> Iterator[None]:
    """Activate a run by public calls, and restore its status afterwards.

    Fallback for an MLflow version with another stack. Overwrites a status set in the meantime.
    """
    import mlflow

    status = mlflow.MlflowClient().get_run(run.info.run_id).info.status
    mlflow.start_run(run_id=run.info.run_id, nested=True, log_system_metrics=False)
    try:
        yield
    finally:
        mlflow.end_run(status)
