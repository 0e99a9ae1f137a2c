"""Verbs as a user sees them, and waiting for what a sweep comes to."""

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import psutil
import pytest

Found = TypeVar("Found")

_SCRIPT = Path(__file__).parents[2] / "scripts" / "sweep.py"
_SIZE = {"COLUMNS": "120", "LINES": "50", "TERM": "xterm"}


def in_a_terminal(*arguments: str, cwd: Path, timeout_s: float = 280) -> str:
    """Run a verb in a pseudo-terminal to its end; return what it drew."""
    driver, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, str(_SCRIPT), *arguments],
        cwd=cwd,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env={**os.environ, **_SIZE},
    )
    os.close(terminal)
    drawn, deadline = b"", time.monotonic() + timeout_s
    try:
        while time.monotonic() < deadline:
            if not select.select([driver], [], [], 1.0)[0]:
                continue
            try:
                drawn += os.read(driver, 65_536)
            except OSError:  # the other end is closed
                break
        assert process.wait(timeout=240) == 0, drawn.decode()
    finally:
        process.kill()
        os.close(driver)
    return drawn.decode()


_AGENTS = ("ray::DashboardAgent", "ray::RuntimeEnvAgent")


def kill(process: "subprocess.Popen[str]") -> None:
    """Kill the driver of a sweep, and wait until its trials have ended, which write till then."""
    runs = process.poll() is None
    others = psutil.Process(process.pid).children(recursive=True) if runs else []
    process.kill()
    process.communicate(timeout=240)
    until(lambda: not any(_runs(each) and not ended_agent(each) for each in others))


def ended_agent(process: psutil.Process) -> bool:
    """End an agent of Ray's whose node was killed; it would look for it for a minute."""
    try:
        is_agent = process.cmdline()[0].startswith(_AGENTS)
        if not is_agent or process.ppid() != 1:
            return False
        process.kill()
    except (psutil.NoSuchProcess, IndexError):
        return False  # it has just ended
    return True


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def until(
    holds: Callable[[], Found],
    timeout_s: float = 240,
    process: "subprocess.Popen[str] | None" = None,
) -> Found:
    """Wait until something is true, while a process runs, if one is given; return it."""
    deadline = time.monotonic() + timeout_s
    while True:
        looked_at = time.monotonic()
        if found := holds():
            return found
        if process is not None and process.poll() is not None:
            pytest.fail(f"it ended before: {process.communicate()}")
        if time.monotonic() > deadline:
            pytest.fail(f"it did not come to be in {timeout_s} s")
        took_s = time.monotonic() - looked_at
        time.sleep(max(0.05, took_s))  # to look takes time from what it waits for
