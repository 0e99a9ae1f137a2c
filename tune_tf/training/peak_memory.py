"""Peak memory of a trial's processes."""

import contextlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import psutil

from tune_tf.result_keys import PEAK_MEMORY


def peak_memory_bytes(process_id: int) -> int | None:
    """Return the peak memory of a local process; None if the process has ended.

    Only Linux reports a peak; on other systems, the current memory is returned.
    """
    with contextlib.suppress(OSError, StopIteration):
        lines = Path(f"/proc/{process_id}/status").read_text().splitlines()
        most = next(line for line in lines if line.startswith("VmHWM"))
        return int(most.split()[1]) * 1024
    with contextlib.suppress(psutil.Error):
        return int(psutil.Process(process_id).memory_info().rss)
    return None


def sum_peak_memory(
    report: Mapping[str, float], reports: Iterable[Mapping[str, float]]
) -> dict[str, float]:
    """Return a report with the summed peak memory of all processes of a trial.

    The sum is left out until all processes have reported a peak.
    """
    summed = {name: value for name, value in report.items() if name != PEAK_MEMORY}
    peaks = [each.get(PEAK_MEMORY) for each in reports]
    known = [peak for peak in peaks if peak is not None]
    return summed | {PEAK_MEMORY: sum(known)} if len(known) == len(peaks) else summed


def peak_memory_result() -> dict[str, float]:
    """Return this process's peak memory by result key; empty if unknown."""
    peak = peak_memory_bytes(os.getpid())
    return {} if peak is None else {PEAK_MEMORY: float(peak)}
