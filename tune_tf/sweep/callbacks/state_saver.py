"""Archiving of Tune's state and the scheduler's, and a check that a resume restored it."""

import contextlib
import logging
import os
import tempfile
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from ray.tune import Callback
from ray.tune.experiment import Trial
from ray.tune.schedulers import TrialScheduler

from tune_tf.errors import SweepConflictError, TuneTfError
from tune_tf.sweep.cluster import SNAPSHOT_PERIOD, TUNE_ENVIRONMENT
from tune_tf.sweep.state.snapshots import STATE_FILES, SnapshotWriter
from tune_tf.tune_internals.controller import limit_time_of_snapshots

_SHARE_OF_TIME = 0.01


class SchedulerStateSaver(Callback):
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


class StateSaver(Callback):
    """Tune callback that archives each state that Tune writes.

    Tune calls it after writing its state in the same loop, so the files are consistent. It must
    restore the ``expected`` trials: it only logs a failed restore and runs every trial again.
    ``current_needs`` returns the value of :attr:`SnapshotWriter.written` for a state.
    """

    def __init__(
        self,
        snapshots: SnapshotWriter,
        expected: Collection[str] = (),
        current_needs: Callable[[], object] = lambda: None,
    ) -> None:
        self._snapshots = snapshots
        self._current_needs = current_needs
        self._expected = frozenset(expected)
        self._archived_ns = 0
        self._paths: list[Path] = []

    def setup(self, *args: Any, **info: Any) -> None:
        """Let Tune save less often where its state is large, unless the user has set how often."""
        if os.environ.get(SNAPSHOT_PERIOD) == TUNE_ENVIRONMENT[SNAPSHOT_PERIOD]:
            limit_time_of_snapshots(_SHARE_OF_TIME)

    @contextlib.contextmanager
    def require_restore(self) -> Iterator[None]:
        """Raise SweepConflictError, or a part's own error, if Tune cannot restore its trials."""
        error: BaseException | None = None

        def catch_error(record: logging.LogRecord) -> bool:
            """Take the error of a failed restore out of the log, where Tune leaves it."""
            nonlocal error
            if not record.exc_info or "restore the run state" not in record.getMessage():
                return True
            error = record.exc_info[1]
            return False

        log = logging.getLogger("ray.tune.execution.tune_controller")
        log.addFilter(catch_error)
        try:
            yield
        except Exception:
            if error is None:
                raise
        finally:
            log.removeFilter(catch_error)
        if isinstance(error, TuneTfError):
            raise error
        if error is not None:
            raise SweepConflictError(
                f"Ray Tune cannot restore the {len(self._expected)} trials of the sweep and would "
                f"run them all again: {error}. Nothing was started or lost: resume the "
                "sweep with the versions of Ray and tune_tf that ran it"
            ) from error

    def on_step_begin(self, trials: list[Trial], **info: Any) -> None:
        """Raise SweepConflictError if Tune has not restored all trials."""
        if not self._expected:
            return
        if missing := self._expected - {trial.trial_id for trial in trials}:
            raise SweepConflictError(
                f"Ray Tune did not restore {len(missing)} trials of the sweep and would run them "
                "again: nothing was started or lost"
            )
        self._expected = frozenset()

    def on_step_end(self, trials: list[Trial], **info: Any) -> None:
        """Archive Tune's state if it has written one."""
        if not self._paths and trials:
            staging = Path(trials[0].local_experiment_path)
            # The folder also holds files of earlier sessions.
            files = [sorted(staging.glob(name), key=_written_ns) for name in STATE_FILES]
            self._paths = [paths[-1] for paths in files] if all(files) else []
        if not self._paths:
            return
        written_ns = _written_ns(self._paths[-1])
        if written_ns != self._archived_ns:
            self._archived_ns = written_ns
            contents = {path.name: path.read_bytes() for path in self._paths}
            self._snapshots.put(contents, self._current_needs())

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        """Archive the last state."""
        self.on_step_end(trials)
        self._snapshots.close()


def _written_ns(path: Path) -> int:
    return path.stat().st_mtime_ns
