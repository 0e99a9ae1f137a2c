"""A sweep whose processes are killed with ``SIGKILL`` at given moments, and that is resumed."""

import random
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from tune_tf.inspection.reported_results import RESULTS, read_last_result
from tune_tf.sweep_folder import SweepFolder

_POLL_S = 0.05
_MIN_DISTANCE = 0.01  # least fraction of the sweep between two kills
_LATEST = 0.9  # latest kill, as a fraction of the sweep: later, no trial may be running


@dataclass(frozen=True)
class Kill:
    """Kill of one process of a sweep: ``driver`` or ``trial``.

    ``at`` is when, as the completed fraction of the sweep's iterations.
    """

    kind: str
    at: float


class ChaosDrill:
    """Runner of a sweep from the command line that kills its processes.

    Args:
        command: Command, such as ``["tune-tf"]``.
        sweep_file: Sweep file; all its trials run to ``max_t``.
        folder: Working directory, which contains the sweep's ``storage_path``.
        seed: Seed of the choice between several processes.
        timeout_s: Seconds in which the sweep must make progress, including a resume.
    """

    def __init__(
        self,
        command: Sequence[str],
        sweep_file: Path,
        folder: Path,
        *,
        seed: int = 0,
        timeout_s: float = 240,
    ) -> None:
        self._command = list(command)
        self._sweep_file = sweep_file
        self._folder = folder
        self._random = random.Random(seed)
        self._timeout_s = timeout_s
        self._driver: subprocess.Popen[bytes]
        self._output = folder / "chaos.log"

    def run(self, kills: Sequence[Kill] = ()) -> None:
        """Run the sweep to its end; AssertionError if it hangs, or fails other than by a kill."""
        self._start("run", str(self._sweep_file))
        try:
            for kill in kills:
                self._wait(min(_LATEST, max(kill.at, self._progress() + _MIN_DISTANCE)))
                getattr(self, f"_kill_{kill.kind}")()
            self._wait()
        finally:
            self._driver.kill()
            self._driver.wait()

    @property
    def _sweep_folder(self) -> Path:
        return max(self._folder.glob("sweeps/*/sweep-info")).parent

    def _progress(self) -> float:
        """Return the completed fraction of the sweep's iterations, from 0 to 1."""
        try:
            folder = SweepFolder.open(self._sweep_folder)
        except ValueError:
            return 0.0
        total = folder.config.budget.num_samples * folder.config.scheduler.max_t
        done = (
            read_last_result(path).get("training_iteration", 0)
            for path in folder.path.glob(f"trial_*/{RESULTS}")
        )
        return float(sum(done) / total)

    def _kill_driver(self) -> None:
        self._driver.kill()
        self._driver.wait()
        self._start("resume", str(self._sweep_folder))

    def _kill_trial(self) -> None:
        self._process("ray::", "Trainable").kill()

    def _start(self, *arguments: str) -> None:
        with self._output.open("ab") as log:
            self._driver = subprocess.Popen(
                [*self._command, *arguments],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _process(self, *words: str) -> psutil.Process:
        """Return a process of the sweep whose command contains all ``words``."""
        deadline = time.monotonic() + self._timeout_s
        while self._driver.poll() is None and time.monotonic() < deadline:
            processes = []
            with suppress(psutil.NoSuchProcess):
                for child in psutil.Process(self._driver.pid).children(recursive=True):
                    with suppress(psutil.NoSuchProcess):  # ended, or a zombie
                        command = " ".join(child.cmdline())[:200]
                        if all(word in command for word in words):
                            processes.append(child)
            if processes:
                return self._random.choice(processes)
            time.sleep(_POLL_S)
        raise self._error()

    def _wait(self, at: float | None = None) -> None:
        """Wait until a fraction of the sweep is completed; until it has ended if None."""
        best, deadline = -1.0, 0.0
        while self._driver.poll() is None:
            progress = self._progress()
            if at is not None and progress >= at:
                return
            if progress > best:
                best, deadline = progress, time.monotonic() + self._timeout_s
            if time.monotonic() > deadline:
                raise self._error()
            time.sleep(_POLL_S)
        if self._driver.returncode or (at is not None and self._progress() < at):
            raise self._error()

    def _error(self) -> AssertionError:
        code = self._driver.poll()
        state = "hangs" if code is None else f"ended with {code}"
        return AssertionError(f"the sweep {state}:\n{self._output.read_text()}")
