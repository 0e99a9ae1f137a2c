"""Guards around Tune's loop: saved scheduler state and clear errors."""

import contextlib
import errno
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ray import tune
from ray.tune.experiment import Trial
from ray.tune.schedulers import TrialScheduler

from tune_tf.errors import RAISED_AT, DiskFullError, TuneTfError, WorkloadError
from tune_tf.sweep_folder import SweepFolder
from tune_tf.tracking.outcome_tracker import latest_result, trial_error

_REFUSAL = re.compile(rf"tune_tf\.errors\.WorkloadError: (.+?)(?:\n{RAISED_AT}|\Z)", re.DOTALL)

_DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class SchedulerStateSaver(tune.Callback):
    """Tune callback that saves the scheduler's state, which Tune's own state excludes."""

    def __init__(self, scheduler: TrialScheduler) -> None:
        self._scheduler = scheduler

    def get_state(self) -> dict[str, Any]:
        """Return the scheduler's state."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "scheduler")
            self._scheduler.save(str(path))
            return {"scheduler": path.read_bytes()}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore the scheduler; Tune calls this before it adds a trial."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "scheduler")
            path.write_bytes(state["scheduler"])
            self._scheduler.restore(str(path))


class BrokenWorkloadCheck(tune.Callback):
    """Tune callback that ends a sweep if its first trials find the workload invalid."""

    def on_trial_error(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """Raise the WorkloadError of the trial's process, if no trial has reported."""
        if any(latest_result(other) for other in trials):
            return
        # Ray keeps only the text of an error in an actor's constructor.
        refusal = _REFUSAL.search(trial_error(trial))
        if refusal:
            raise WorkloadError(refusal[1].strip())


@contextlib.contextmanager
def clear_errors(folder: SweepFolder) -> Iterator[None]:
    """Raise the original error instead of the TuneError that quotes its traceback."""
    try:
        yield
    except Exception as error:
        cause = error.__cause__ or error.__context__ if isinstance(error, tune.TuneError) else error
        if isinstance(cause, OSError) and cause.errno in _DISK_FULL:
            raise DiskFullError(
                f"the disk is full: {cause}; free some space, then resume the sweep: tune-tf "
                f"resume {folder.path}"
            ) from error
        if isinstance(cause, TuneTfError) and cause is not error:
            raise cause from None
        raise
