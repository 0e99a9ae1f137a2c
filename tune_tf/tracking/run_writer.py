"""Writer of a sweep's MLflow runs, with secrets masked, and delivery of what a writer left."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from tune_tf.secrets import mask_all, mask_secrets
from tune_tf.tracking.names import MAX_RUN_NAME_LENGTH, one_line
from tune_tf.tracking.runs import SweepRuns, TrackedSweep
from tune_tf.tracking.store import connect
from tune_tf.tracking.writing.run_update import RunUpdate
from tune_tf.tracking.writing.spool import Spool
from tune_tf.tracking.writing.writer import BackgroundWriter

_logger = logging.getLogger(__name__)

_CLOSE_TIMEOUT_S = 300.0
_SYNC_PATIENCE_S = 20.0


class RunWriter:
    """Writer of a sweep's MLflow runs that masks secrets and returns run ids.

    Updates put while it is closed are dropped. Without ``spool_path``, unwritten ones are kept in
    memory.
    """

    def __init__(self, sweep: TrackedSweep, spool_path: Path | None) -> None:
        self.sweep = sweep
        self._spool_path = spool_path
        self._writer: BackgroundWriter | None = None
        self._run_ids: dict[str, str] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for copies and pickles, without the open writer."""
        return {**vars(self), "_writer": None, "_run_ids": self.run_ids}

    @property
    def is_open(self) -> bool:
        """Whether updates are written."""
        return self._writer is not None

    @property
    def run_ids(self) -> dict[str, str]:
        """MLflow's run ids by trial id or :data:`PARENT`, for the runs created so far."""
        runs = self._writer and self._writer.runs
        return {**self._run_ids, **(runs.run_ids if runs else {})}

    def run_id_of(self, run: str) -> str | None:
        """Return a run's id; None while the writer has not created it."""
        runs = self._writer and self._writer.runs
        return (runs and runs.run_id_of(run)) or self._run_ids.get(run)

    def open(self, run_ids: Mapping[str, str], **changes: Any) -> None:
        """Start the writer, with known run ids and changed fields of the sweep.

        Raises:
            SweepConflictError: Another process holds the spool.
        """
        self.sweep = replace(self.sweep, **changes)
        self._run_ids = dict(run_ids)
        self._writer = BackgroundWriter(partial(_open_runs, self.sweep), self._spool())

    def put(self, update: RunUpdate) -> None:
        """Queue an update, with its secrets masked."""
        if self._writer is None:
            return
        for part in ("params", "tags", "texts"):
            if texts := getattr(update, part):  # masking looks at the whole environment
                setattr(update, part, mask_all(texts))
        if update.name:
            update.name = one_line(mask_secrets(update.name), MAX_RUN_NAME_LENGTH)
        self._writer.put(update)

    def unwritten(self) -> list[RunUpdate]:
        """Return the updates that would be lost with this process, without waiting."""
        return self._writer.unwritten() if self._writer is not None else []

    def close(self) -> None:
        """Write all updates and stop the writer."""
        if self._writer is not None:
            self._writer.close(_CLOSE_TIMEOUT_S)
        self._run_ids = self.run_ids
        self._writer = None

    def _spool(self) -> Spool | None:
        if self._spool_path is None:
            return None
        try:
            return Spool(self._spool_path, self.sweep.to_dict())
        except OSError as error:
            _logger.warning(
                "MLflow updates cannot be spooled to disk and are kept in memory: %s", error
            )
            return None


@dataclass(frozen=True)
class Delivery:
    """Result of delivering a spool to MLflow, in updates."""

    num_delivered: int
    num_left: int  # in the spool
    num_refused: int  # values that MLflow rejected permanently
    error: str = ""  # empty if nothing is left


def deliver(
    sweep: TrackedSweep, spool_path: Path, *, patience_s: float = _SYNC_PATIENCE_S
) -> Delivery:
    """Deliver a sweep's spool to MLflow, with the settings in it; it may be empty or missing.

    Retries end after ``patience_s`` seconds without any success.

    Raises:
        SweepConflictError: The sweep is running, and delivers its spool itself.
    """
    if not spool_path.is_dir():
        return Delivery(0, 0, 0)
    spool = Spool(spool_path)
    num_waiting = spool.num_left
    if spool.settings:
        sweep = TrackedSweep.from_dict(spool.settings, sweep.tracking_uri)
    open_runs = partial(_open_runs, sweep)
    writer = BackgroundWriter(open_runs, spool, linger_s=0.0, patience_s=patience_s)
    writer.close()
    num_left = writer.num_left
    error = writer.last_error if num_left else ""
    return Delivery(num_waiting - num_left, num_left, writer.lost, error)


def _open_runs(sweep: TrackedSweep) -> SweepRuns:
    return SweepRuns(connect(sweep.tracking_uri), sweep)
