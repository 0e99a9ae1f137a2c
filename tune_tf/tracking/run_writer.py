"""Where a sweep puts what is to be written to its MLflow runs."""

import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tune_tf.errors import InvalidSettingsError
from tune_tf.secrets import all_masked, masked
from tune_tf.tracking.names import MAX_EXPERIMENT_NAME_LENGTH, MAX_RUN_NAME_LENGTH, one_line
from tune_tf.tracking.runs import Sweep, SweepRuns, connect
from tune_tf.tracking.writing.run_update import RunUpdate
from tune_tf.tracking.writing.spool import Spool
from tune_tf.tracking.writing.writer import Writer

_logger = logging.getLogger(__name__)

_CLOSE_TIMEOUT_S = 300.0
_RUN_TIMEOUT_S = 30.0


class RunWriter:
    """Masks the secrets in what is put, hands it to a writer, and knows the runs' ids.

    What is put while it is closed is dropped.

    Args:
        sweep: What the runs have in common.
        spool_path: Folder that keeps what is not written yet; None to keep it in memory.
    """

    def __init__(self, sweep: Sweep, spool_path: Path | None = None) -> None:
        self.sweep = sweep
        self._spool_path = spool_path
        self._writer: Writer | None = None
        self._runs: SweepRuns | None = None
        self._run_ids: dict[str, str] = {}
        self._in_time = spool_path is None

    def __getstate__(self) -> dict[str, Any]:
        """Copy and pickle what is not open: the runs' ids, and what the runs have in common."""
        return {**vars(self), "_writer": None, "_runs": None, "_run_ids": self.run_ids}

    @property
    def is_open(self) -> bool:
        """Whether anything that is put is written."""
        return self._writer is not None

    @property
    def run_ids(self) -> dict[str, str]:
        """Trial id, or the parent's key, to MLflow's run id, for the runs made so far."""
        return {**self._run_ids, **(self._runs.run_ids if self._runs is not None else {})}

    def run_id_of(self, run: str) -> str | None:
        """Return a run's id as far as it is known now; the writer may not have made it yet."""
        made = self._runs.run_id_of(run) if self._runs is not None else None
        return made or self._run_ids.get(run)

    def await_run_id(self, run: str) -> str | None:
        """Return a run's id, once the writer has made the run; None while the store is away.

        A store that has once not answered in time is not waited for again, and with a spool none
        is: a sweep with one adds at its end what came later.
        """
        if self._writer is not None and self._in_time and self.run_id_of(run) is None:
            self._writer.hurry(lambda: self.run_id_of(run), _RUN_TIMEOUT_S)
            self._in_time = self.run_id_of(run) is not None
        return self.run_id_of(run)

    def open(self, run_ids: Mapping[str, str], **changes: Any) -> None:
        """Start the writer.

        Args:
            run_ids: Runs that are known from before.
            changes: What is new of what the runs have in common.

        Raises:
            SweepConflictError: Another process holds the spool.
        """
        self.sweep = replace(self.sweep, **changes)
        self._run_ids, self._runs = dict(run_ids), None
        self._in_time = self._spool_path is None
        self._writer = Writer(self._open_runs, self._spool())

    def put(self, run: str, **what: Any) -> None:
        """Put what is to be written to a run; see :class:`RunUpdate` for what that may be."""
        if self._writer is None:
            return
        for kind in ("params", "tags", "texts"):
            if what.get(kind):
                what[kind] = all_masked(what[kind])
        if name := what.get("name"):
            what["name"] = one_line(masked(name), MAX_RUN_NAME_LENGTH)
        self._writer.put(RunUpdate(run, now_ms(), **what))

    def put_again(self, entry: RunUpdate) -> None:
        """Put an entry that was put before, and may be written or not."""
        if self._writer is not None:
            self._writer.put(entry)

    def unwritten(self) -> list[RunUpdate]:
        """Return what would be lost with this process; never waits."""
        return self._writer.unwritten() if self._writer is not None else []

    def flush(self, timeout_s: float | None = None) -> bool:
        """Wait until all is written that was put; return whether that came in time."""
        return self._writer is None or self._writer.flush(timeout_s)

    def close(self) -> None:
        """Wait until all is written, and end the writer."""
        if self._writer is not None:
            self._writer.close(_CLOSE_TIMEOUT_S)
        self._run_ids = self.run_ids
        self._writer = self._runs = None

    def _open_runs(self) -> SweepRuns:
        """Open the store; called in the writer's thread."""
        self._runs = SweepRuns(connect(self.sweep.tracking_uri), self.sweep)
        return self._runs

    def _spool(self) -> Spool | None:
        if self._spool_path is None:
            return None
        try:
            return Spool(self._spool_path, self.sweep.to_dict())
        except OSError as error:
            _logger.warning(
                "What MLflow has not taken yet cannot be kept on disk, only in memory: %s", error
            )
            return None


def check_names(experiment_name: str, sweep_id: str | None) -> None:
    """Refuse an experiment's name and a sweep's id that MLflow's stores cannot hold or find.

    Raises:
        InvalidSettingsError: With all faults.
    """
    faults = []
    if (
        experiment_name != one_line(experiment_name, MAX_EXPERIMENT_NAME_LENGTH)
        or not experiment_name
    ):
        faults.append(
            f"experiment_name must be 1 to {MAX_EXPERIMENT_NAME_LENGTH} characters that can be "
            f"printed, without spaces at its ends, not {experiment_name!r}"
        )
    if sweep_id is not None and (not sweep_id or "'" in sweep_id):
        faults.append(f"sweep_id must be text without quotes, not {sweep_id!r}")
    if faults:
        raise InvalidSettingsError(faults)


def now_ms() -> int:
    """Return the time, in milliseconds since the epoch."""
    return int(time.time() * 1000)
