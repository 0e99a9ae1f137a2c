"""Results of a sweep after one fault and one resume, for each of some twenty kinds of faults.

A small sweep runs once without faults. Then it runs again for each fault, at a moment that is drawn
by the round, and is resumed once if it has not ended by itself. Each time every trial has to stand
once in Tune, Optuna and MLflow, in the same state, with the same curve as without a fault, the same
trial has to be the best, and nothing may print a traceback.
"""

import argparse
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import mlflow
from measuring.summary import Target, print_summary, print_table

from tune_tf.inspection import SweepState, SweepView
from tune_tf.testing.chaos import ChaosDrill, assert_same_as_undisturbed

_COMMAND = [sys.executable, str(Path(__file__).parents[1] / "sweep.py")]
_PATIENCE_S = 200
_END_S = 90
# Python itself prints one if a signal arrives while it frees an object.
_TRACEBACK = re.compile(r"(?<!>)\nTraceback")
_TARGETS = {"rounds_wrong": Target(0, "at most")}
_SWEEP = """\
name: faults
workload: tune_tf.workloads.digits:DigitsMLP
objective: {{metric: val_loss, mode: min}}
space:
  learning_rate: {{loguniform: [1.0e-4, 1.0e-1]}}
  units: {{choice: [8, 16]}}
  batch_size: 64
searcher: {{sampler: random}}
scheduler: {{name: fifo, max_t: 30}}
resources: {{cpus: 1}}
max_concurrent_trials: 2
max_failures: 20
checkpoint_interval_s: 0
budget: {{num_samples: 8}}
mlflow: {mlflow}
"""


class _Drill(ChaosDrill):
    """Sweep that one fault happens to."""

    def __init__(self, folder: Path, tracked: str, seed: int) -> None:
        folder.mkdir()
        file = folder / "faults.yaml"
        file.write_text(_SWEEP.format(mlflow=tracked))
        self.draw = random.Random(f"{folder.name} {seed}")
        super().__init__(_COMMAND, file, folder, seed=seed, timeout_s=_PATIENCE_S)

    @property
    def store(self) -> Path:
        return self._folder / "mlflow.db"

    @property
    def output(self) -> str:
        return self._output.read_text()

    def run_with(self, fault: "Callable[[_Drill], object]") -> SweepView:
        """Run the sweep to its end, with a fault and at most one resume."""
        self._start("run", str(self._sweep_file))
        try:
            fault(self)
            if self._driver.poll() is None:
                self._wait()
            folders = list(self._folder.glob("sweeps/*/sweep-info"))
            if folders and SweepView.open(self._sweep_folder).state is SweepState.ENDED:
                return SweepView.open(self._sweep_folder)
            again = ("resume", self._sweep_folder) if folders else ("run", self._sweep_file)
            self._start(*map(str, again))
            self._wait()
        finally:
            self.kill()
        return SweepView.open(self._sweep_folder)

    def early(self) -> None:
        """Wait for a moment before the first trial."""
        time.sleep(self.draw.uniform(1, 6))

    def amid(self) -> None:
        """Wait for a moment while trials run."""
        self._wait(self.draw.uniform(0.05, 0.85))

    def late(self) -> None:
        """Wait for a moment in which the last trials end."""
        self._wait(0.9)
        time.sleep(self.draw.uniform(0, 1.5))

    def kill(self) -> None:
        """Kill the driver."""
        if self._driver.poll() is None:
            self._driver.kill()
            self._driver.wait()

    def send(self, *numbers: int) -> None:
        """Send signals within half a second; the driver has to end by them."""
        for number in numbers:
            self._driver.send_signal(number)
            time.sleep(self.draw.uniform(0, 0.5))
        self._driver.wait(_END_S)

    def kill_child(self, *words: str) -> None:
        """Kill a process of Ray; the driver may end by it, and goes on otherwise."""
        self._process(*words).kill()

    def kill_ray(self, name: str) -> None:
        """Kill a process that Ray needs; a driver that waits for it is killed, too."""
        self.kill_child(name)
        with suppress(subprocess.TimeoutExpired):
            self._driver.wait(_END_S)
        self.kill()

    def pause(self) -> None:
        """Stop the driver for five seconds."""
        self._driver.send_signal(signal.SIGSTOP)
        time.sleep(5)
        self._driver.send_signal(signal.SIGCONT)

    def lock_store(self) -> None:
        """Lock MLflow's database for eight seconds."""
        store = sqlite3.connect(self.store, timeout=30, isolation_level=None)
        store.execute("BEGIN EXCLUSIVE")
        time.sleep(8)
        store.execute("ROLLBACK")
        store.close()

    def hide(self, name: str, seconds: float) -> None:
        """Put something else in place of a file or folder for a while, or until the driver ends."""
        path, aside = self._folder / name, self._folder / "aside"
        path.rename(aside)
        path.touch() if aside.is_dir() else path.mkdir()
        with suppress(subprocess.TimeoutExpired):
            self._driver.wait(seconds)
        path.unlink() if aside.is_dir() else path.rmdir()
        aside.rename(path)

    def cut(self, pattern: str) -> None:
        """Kill the driver, and cut off the end of a file that it wrote."""
        self.kill()
        newest = max(self._sweep_folder.glob(pattern), key=lambda path: path.stat().st_mtime)
        data = newest.read_bytes()
        newest.write_bytes(data[: -self.draw.randint(1, max(1, len(data) // 3))])

    def lose_checkpoint(self) -> None:
        """Kill the driver, and remove the newest checkpoint."""
        self.kill()
        paths = self._sweep_folder.glob("trial_*/checkpoint_*")
        if newest := max(paths, key=lambda path: path.stat().st_mtime, default=None):
            shutil.rmtree(newest)

    def kill_resume(self) -> None:
        """Kill the driver, and the one that resumes."""
        self.kill()
        self._start("resume", str(self._sweep_folder))
        time.sleep(self.draw.uniform(1, 9))
        self.kill()


_WORKER = ("ray::", "Trainable")
_Moment = Callable[[_Drill], None]
_FAULTS: dict[str, tuple[_Moment, Callable[..., object]]] = {
    "driver killed before the first trial": (_Drill.early, _Drill.kill),
    "driver killed": (_Drill.amid, _Drill.kill),
    "driver killed at the end": (_Drill.late, _Drill.kill),
    "driver killed, and in the resume": (_Drill.amid, _Drill.kill_resume),
    "driver stopped for 5 s": (_Drill.amid, _Drill.pause),
    "SIGTERM before the first trial": (
        _Drill.early,
        lambda drill: drill.send(signal.SIGTERM),
    ),
    "SIGTERM": (_Drill.amid, lambda drill: drill.send(signal.SIGTERM)),
    "SIGHUP": (_Drill.amid, lambda drill: drill.send(signal.SIGHUP)),
    "Ctrl-C": (_Drill.amid, lambda drill: drill.send(signal.SIGINT)),
    "Ctrl-C twice": (_Drill.amid, lambda drill: drill.send(signal.SIGINT, signal.SIGINT)),
    "trial's process killed": (_Drill.amid, lambda drill: drill.kill_child(*_WORKER)),
    "raylet killed": (_Drill.amid, lambda drill: drill.kill_ray("raylet")),
    "Ray's GCS killed": (_Drill.amid, lambda drill: drill.kill_ray("gcs_server")),
    "MLflow's database locked": (_Drill.amid, _Drill.lock_store),
    "MLflow's database gone": (_Drill.amid, lambda drill: drill.hide("mlflow.db", 6)),
    "storage gone": (_Drill.amid, lambda drill: drill.hide("sweeps", _END_S)),
    "event log cut": (_Drill.amid, lambda drill: drill.cut("events.jsonl")),
    "study's journal cut": (_Drill.amid, lambda drill: drill.cut("study.journal")),
    "Tune's state cut": (_Drill.amid, lambda drill: drill.cut("experiment_state-*.json")),
    "snapshot cut": (_Drill.amid, lambda drill: drill.cut("snapshots/*.zip")),
    "newest checkpoint lost": (_Drill.amid, _Drill.lose_checkpoint),
}


def _inject(moment: _Moment, fault: Callable[..., object], drill: _Drill) -> None:
    moment(drill)
    fault(drill)


def main() -> None:
    """Run all faults; print a line for each, and the number of rounds that were wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="number of the first round")
    parser.add_argument("--fault", choices=_FAULTS, action="append", help="only this one")
    parser.add_argument("--quick", action="store_true", help="smoke run: two faults, once")
    given = parser.parse_args()
    names = given.fault or list(_FAULTS)
    if given.quick:
        given.rounds, names = 1, names[1:3]
    rounds = range(given.first, given.first + given.rounds)
    rows, wrong, began = [], 0, time.monotonic()
    with tempfile.TemporaryDirectory() as root:
        quiet = _Drill(Path(root, "quiet"), "null", 0).run()
        for name in names:
            failures = [
                failure for each in rounds if (failure := _failure(name, each, root, quiet))
            ]
            wrong += len(failures)
            right = f"{len(rounds) - len(failures)} of {len(rounds)}"
            rows.append((name, right, failures[0] if failures else ""))
            sys.stderr.write(f"{name}: {right} {' '.join(failures)}\n")
    print_table(("fault", "as without", "first failure"), rows)
    values = {"rounds_wrong": float(wrong), "seconds": time.monotonic() - began}
    print_summary("faults", values, _TARGETS, faults=len(names), rounds=given.rounds)


def _failure(name: str, number: int, root: str, quiet: SweepView) -> str:
    """Return what is wrong after a fault; empty if nothing is."""
    folder = Path(root, f"{list(_FAULTS).index(name)}-{number}")
    store = f"sqlite:///{folder / 'mlflow.db'}"
    drill = _Drill(folder, f"{{tracking_uri: {store!r}, log_best_model: false}}", number)
    try:
        faulty = drill.run_with(partial(_inject, *_FAULTS[name]))
        assert_same_as_undisturbed(faulty, quiet, mlflow.MlflowClient(store))
    except (AssertionError, subprocess.TimeoutExpired) as error:
        return f"round {number}: {error}"[:300]
    finally:
        output = drill.output
        shutil.rmtree(folder, ignore_errors=True)
    return f"round {number}: a traceback" if _TRACEBACK.search(output) else ""


if __name__ == "__main__":
    main()
