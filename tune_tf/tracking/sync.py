"""What is done to a sweep's MLflow runs while it does not run: delivering and closing."""

from dataclasses import dataclass
from pathlib import Path

from tune_tf.tracking.runs import SweepRuns, TrackedSweep, connect
from tune_tf.tracking.writing.spool import Spool
from tune_tf.tracking.writing.writer import Writer

_PATIENCE_S = 20.0


@dataclass(frozen=True)
class Delivery:
    """What became of the entries of a spool.

    Args:
        num_delivered: Entries that the store has now.
        num_left: Entries that it has not taken; they stay in the spool.
        num_refused: Values that it will never take.
        error: Why entries are left; empty if none are.
    """

    num_delivered: int
    num_left: int
    num_refused: int
    error: str = ""


def deliver(sweep: TrackedSweep, spool_path: Path, *, patience_s: float = _PATIENCE_S) -> Delivery:
    """Write what a sweep's spool holds to MLflow; an empty or missing one is no error.

    Args:
        sweep: What the runs have in common, as far as the spool does not say it.
        spool_path: The spool's folder.
        patience_s: How long to go on without any success, in seconds.

    Raises:
        SweepConflictError: The sweep is still running: it delivers its spool itself.
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
    """End the runs that a killed driver has left running, as those of an interrupted sweep.

    Args:
        sweep: What the runs have in common.
        spool_path: Where the sweep's spool is while it runs.

    Returns:
        MLflow's ids of the runs that were ended.

    Raises:
        SweepConflictError: The sweep is still running.
    """
    spool = Spool(spool_path)
    try:
        return SweepRuns(connect(sweep.tracking_uri), sweep).end_running()
    finally:
        spool.close()
