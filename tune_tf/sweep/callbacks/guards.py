"""What stands around Tune's own loop while a sweep runs."""

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
from tune_tf.tracking.outcome_tracker import error_of, latest_result

_REFUSAL = re.compile(rf"tune_tf\.errors\.WorkloadError: (.+?)(?:\n{RAISED_AT}|\Z)", re.DOTALL)

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class SchedulerCheck(tune.Callback):
    """Puts the scheduler's rungs into Tune's snapshots, which leave them out."""

    def __init__(self, kept: TrialScheduler) -> None:
        self._scheduler = kept

    def get_state(self) -> dict[str, Any]:
        """Return the scheduler's state."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "scheduler")
            self._scheduler.save(str(path))
            return {"scheduler": path.read_bytes()}

    def set_state(self, state: dict[str, Any]) -> None:
        """Give the scheduler its state back; Tune calls this before any trial is added."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "scheduler")
            path.write_bytes(state["scheduler"])
            self._scheduler.restore(str(path))


class BrokenWorkloadCheck(tune.Callback):
    """Ends a sweep whose very first trials find that the workload breaks its contract."""

    def on_trial_error(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """End the sweep if the workload is refused before any trial has reported.

        Raises:
            WorkloadError: What the trial's process said.
        """
        if any(latest_result(other) for other in trials):
            return
        # Of an error in an actor's making Ray keeps the text only.
        refusal = _REFUSAL.search(error_of(trial))
        if refusal:
            raise WorkloadError(refusal[1].strip())


@contextlib.contextmanager
def clear_errors(folder: SweepFolder) -> Iterator[None]:
    """Raise what went wrong, not Tune's text of a traceback that has it inside."""
    try:
        yield
    except Exception as error:
        cause = error.__cause__ or error.__context__ if isinstance(error, tune.TuneError) else error
        if isinstance(cause, OSError) and cause.errno in _NO_ROOM:
            raise DiskFullError(
                f"the disk is full: {cause}; make room, then go on with: "
                f"tune-tf resume {folder.path}"
            ) from error
        if isinstance(cause, TuneTfError) and cause is not error:
            raise cause from None
        raise
