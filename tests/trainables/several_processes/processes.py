"""Whether processes run."""

import time
from pathlib import Path


def have_ended(pids, timeout_s=240):
    """Return whether processes end; a killed actor takes its moment."""
    deadline = time.monotonic() + timeout_s
    while left := [pid for pid in pids if _runs(pid)]:
        if time.monotonic() > deadline:
            return False
        pids = left
        time.sleep(0.05)
    return True


def _runs(pid):
    """Return whether a process runs; one that is dead may wait for its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
