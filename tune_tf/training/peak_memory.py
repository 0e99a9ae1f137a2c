"""The most memory that a process has had."""

import contextlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import psutil

from tune_tf.result_keys import PEAK_MEMORY


def peak_memory_bytes(process_id: int) -> int | None:
    """Return the most memory that a process of this machine has had; None where it is gone.

    Other systems than Linux do not tell the most, so it is what the process has now.
    """
    with contextlib.suppress(OSError, StopIteration):
        lines = Path(f"/proc/{process_id}/status").read_text().splitlines()
        most = next(line for line in lines if line.startswith("VmHWM"))
        return int(most.split()[1]) * 1024
    with contextlib.suppress(psutil.Error):
        return int(psutil.Process(process_id).memory_info().rss)
    return None


def with_summed_peak(
    told: Mapping[str, float], of_all: Iterable[Mapping[str, float]]
) -> dict[str, float]:
    """Return what one process of a trial reports, with the peak memory of all of them together.

    Args:
        told: What is reported, by key of a result.
        of_all: What each process has told. Where one has not yet, the peak is left out.
    """
    summed = {name: value for name, value in told.items() if name != PEAK_MEMORY}
    peaks = [each.get(PEAK_MEMORY) for each in of_all]
    known = [peak for peak in peaks if peak is not None]
    return summed | {PEAK_MEMORY: sum(known)} if len(known) == len(peaks) else summed


def told_peak_memory() -> dict[str, float]:
    """Return what a trial's process reports of itself, by key of a result."""
    peak = peak_memory_bytes(os.getpid())
    return {} if peak is None else {PEAK_MEMORY: float(peak)}
