"""Delivery of spooled updates to MLflow, and closing of runs that a killed driver left open."""

from dataclasses import dataclass
from pathlib import Path

from tune_tf.tracking.runs import SweepRuns, TrackedSweep
from tune_tf.tracking.store import connect
from tune_tf.tracking.writing.spool import Spool
from tune_tf.tracking.writing.writer import Writer

_PATIENCE_S = 20.0


@dataclass(frozen=True)
class Delivery:
    """Result of delivering a spool to MLflow.

    Args:
        num_delivered: Number of delivered updates.
        num_left: Number of undelivered updates, which stay in the spool.
        num_refused: Number of values that MLflow rejected permanently.
        error: Last error; empty if nothing is left.
    """

    num_delivered: int
    num_left: int
    num_refused: int
    error: str = ""


def deliver(sweep: TrackedSweep, spool_path: Path, *, patience_s: float = _PATIENCE_S) -> Delivery:
    """Deliver a sweep's spool to MLflow; an empty or missing one is no error.

    Settings in the spool replace those of ``sweep``, except for the tracking URI. Retries end
    after ``patience_s`` seconds without any success.

    Raises:
        SweepConflictError: The sweep is running, and delivers its spool itself.
    """
    if not spool_path.is_dir():
        return Delivery(0, 0, 0)
    spool = Spool(spool_path)
    if not (num_waiting := spool.num_entries):
        spool.close()
        return Delivery(0, 0, 0)
    if spool.about:
        sweep = TrackedSweep.from_dict(spool.about, sweep.tracking_uri)
    writer = Writer(
        lambda: SweepRuns(connect(sweep.tracking_uri), sweep),
        spool,
        linger_s=0.0,
        patience_s=patience_s,
    )
    writer.close()
    num_left = writer.num_left
    error = writer.last_error if num_left else ""
    return Delivery(num_waiting - num_left, num_left, writer.lost, error)


def end_runs(sweep: TrackedSweep, spool_path: Path) -> list[str]:
    """Mark the runs that a killed driver left running as interrupted; return MLflow's ids of them.

    Raises:
        SweepConflictError: The sweep is still running, so its spool is locked.
    """
    spool = Spool(spool_path)
    try:
        return SweepRuns(connect(sweep.tracking_uri), sweep).end_running()
    finally:
        spool.close()
