"""Chaos test that kills processes of a sweep with ``SIGKILL`` at random times and resumes it."""

import json
import random
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import IO, TYPE_CHECKING, Final, Protocol

from tune_tf.inspection import SweepView
from tune_tf.inspection.reported_results import RESULTS, read_last_result
from tune_tf.sweep.state.experiment_state import TuneState
from tune_tf.sweep.state.recovery import recover
from tune_tf.sweep_folder import SweepFolder
from tune_tf.testing.truth import TrialStates, assert_consistent_states, trial_states

if TYPE_CHECKING:
    import mlflow
    import psutil

KILL_TARGETS: Final = ("driver", "trial", "raylet", "server")
"""Kinds of processes to kill: the sweep's driver, a trial, the raylet, the MLflow server."""

_POLL_S = 0.05
_WITHOUT_RAYLET_S = 3  # then the driver is killed too, as when Ray is restarted
_BETWEEN = 0.01  # least fraction of the sweep between two kills
_LAST = 0.9  # latest kill, as a fraction of the sweep: later, no trial may be running


class Server(Protocol):
    """MLflow server that can be killed and restarted at the same address."""

    def start(self) -> None:
        """Start the server; return once it responds."""

    def kill(self) -> None:
        """Kill the server."""


@dataclass(frozen=True)
class Kill:
    """Kill of one process of a sweep.

    Args:
        kind: One of :data:`KILL_TARGETS`.
        at: Time, as the completed fraction of the sweep's iterations, from 0 to 1.
    """

    kind: str
    at: float


def draw_kills(counts: Mapping[str, int], seed: int) -> list[Kill]:
    """Return kills at random times of a sweep, in order; ``counts`` has their number by kind."""
    draw = random.Random(seed)
    kinds = [kind for kind, count in counts.items() for _ in range(count)]
    draw.shuffle(kinds)
    moments = sorted(draw.uniform(0.02, 0.85) for _ in kinds)
    return [Kill(kind, at) for kind, at in zip(kinds, moments, strict=True)]


class ChaosDrill:
    """Runner of a sweep from the command line that kills its processes.

    Args:
        command: Command, such as ``["tune-tf"]``.
        sweep_file: Sweep file; all its trials run to ``max_t``.
        folder: Working directory, which contains the sweep's ``storage_path``.
        server: The sweep's MLflow server; None if it is not killed.
        seed: Seed of the choice between several trials.
        timeout_s: Seconds in which the sweep must make progress, including a resume.
    """

    def __init__(
        self,
        command: Sequence[str],
        sweep_file: Path,
        folder: Path,
        server: Server | None = None,
        *,
        seed: int = 0,
        timeout_s: float = 240,
    ) -> None:
        self._command = list(command)
        self._sweep_file = sweep_file
        self._folder = folder
        self._server = server
        self._draw = random.Random(seed)
        self._timeout_s = timeout_s
        self._driver: subprocess.Popen[bytes] | None = None
        self._starting: threading.Thread | None = None
        self._output = folder / "chaos.log"

    def run(self, kills: Sequence[Kill] = ()) -> SweepView:
        """Run the sweep to its end, with kills on the way.

        Raises:
            AssertionError: The sweep makes no progress, or fails other than by a kill.
        """
        self._start("run", str(self._sweep_file))
        try:
            for kill in kills:
                self._wait_for(min(_LAST, max(kill.at, self.progress() + _BETWEEN)))
                self._log(f"killing the {kill.kind} at {self.progress():.2f} (from {kill.at:.2f})")
                getattr(self, f"_kill_{kill.kind}")()
            self._wait_for_end()
        finally:
            if self._starting is not None:
                self._starting.join()
            if self._driver is not None and self._driver.poll() is None:
                self._driver.kill()
                self._driver.wait()
        return self.view

    @property
    def view(self) -> SweepView:
        """View of the sweep's folder."""
        return SweepView.open(self.path)

    @property
    def path(self) -> Path:
        """The sweep's folder."""
        return max(self._folder.glob("sweeps/*/sweep-info")).parent

    def progress(self) -> float:
        """Return the completed fraction of the sweep's iterations, from 0 to 1."""
        try:
            folder = SweepFolder.open(self.path)
        except ValueError:
            return 0.0
        total = folder.config.budget.num_samples * folder.config.scheduler.max_t
        done = (
            read_last_result(path).get("training_iteration", 0)
            for path in folder.path.glob(f"trial_*/{RESULTS}")
        )
        return float(sum(done) / total)

    def _kill_driver(self) -> None:
        self._running().kill()
        self._running().wait()
        self._resume()

    def _kill_raylet(self) -> None:
        self._process("raylet").kill()
        driver = self._running()
        try:
            driver.wait(_WITHOUT_RAYLET_S)  # Ray eventually ends a driver without a raylet
        except subprocess.TimeoutExpired:
            driver.kill()
            driver.wait()
        self._resume()

    def _kill_trial(self) -> None:
        self._process("ray::", "Trainable").kill()

    def _kill_server(self) -> None:
        server, before = self._server, self._starting
        assert server is not None, "there is no server to kill"

        def kill() -> None:
            if before is not None:
                before.join()
            server.kill()
            server.start()

        self._starting = threading.Thread(target=kill)
        self._starting.start()  # the sweep continues meanwhile

    def _log(self, what: str) -> None:
        with self._output.open("a") as log:
            log.write(f"[{time.strftime('%H:%M:%S')}] {what}\n")

    def _resume(self) -> None:
        self._start("resume", str(self.path))

    def _start(self, *words: str) -> None:
        with self._output.open("ab") as log:
            self._driver = self._popen([*self._command, *words], log)

    def _popen(self, command: list[str], log: IO[bytes]) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(  # noqa: S603 - the command is the caller's
            command, cwd=self._folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )

    def _running(self) -> "subprocess.Popen[bytes]":
        assert self._driver is not None, "the sweep was not started"
        return self._driver

    def _process(self, *words: str) -> "psutil.Process":
        """Return a process of the sweep whose command contains all ``words``."""
        import psutil  # a dependency of Ray

        deadline = time.monotonic() + self._timeout_s
        while True:
            found = []
            with suppress(psutil.NoSuchProcess):
                for child in psutil.Process(self._running().pid).children(recursive=True):
                    with suppress(psutil.NoSuchProcess):  # ended, or a zombie
                        command = " ".join(child.cmdline())[:200]
                        if all(word in command for word in words):
                            found.append(child)
            if found:
                return self._draw.choice(found)
            self._check_alive(deadline)

    def _wait_for(self, at: float) -> None:
        best, deadline = -1.0, 0.0
        while (progress := self.progress()) < at:
            if progress > best:
                best, deadline = progress, time.monotonic() + self._timeout_s
            self._check_alive(deadline)

    def _wait_for_end(self) -> None:
        best, deadline = -1.0, 0.0
        while (code := self._running().poll()) is None:
            progress = self.progress()
            if progress > best:
                best, deadline = progress, time.monotonic() + self._timeout_s
            if time.monotonic() > deadline:
                raise AssertionError(f"the sweep did not end:\n{self._output.read_text()}")
            time.sleep(_POLL_S)
        if code:
            raise AssertionError(f"the sweep ended with {code}:\n{self._output.read_text()}")

    def _check_alive(self, deadline: float) -> None:
        code = self._running().poll()
        if code is not None or time.monotonic() > deadline:
            state = "hangs" if code is None else f"ended with {code}"
            raise AssertionError(f"the sweep {state}:\n{self._output.read_text()}")
        time.sleep(_POLL_S)


def read_trial_states(folder: SweepFolder, client: "mlflow.MlflowClient") -> dict[str, TrialStates]:
    """Read the states of a sweep's trials in Tune, Optuna and MLflow."""
    import optuna  # imported late: only this function needs it
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    state = TuneState(recover(folder.path, folder.config).files)
    trials = [SimpleNamespace(trial_id=each.trial_id, status=each.status) for each in state.trials]
    storage = JournalStorage(JournalFileBackend(folder.study_storage))
    study = optuna.load_study(study_name=folder.sweep_id, storage=storage)
    mlflow_settings = folder.config.mlflow
    assert mlflow_settings is not None, "the sweep is not tracked"
    return trial_states(
        trials,
        study,
        client,
        mlflow_settings.experiment_name,
        folder.config.leading_objective.metric,
    )


def assert_same_as_undisturbed(
    faulty: SweepView, quiet: SweepView, client: "mlflow.MlflowClient"
) -> None:
    """Assert that a disturbed sweep has the results of an undisturbed one.

    Every trial exists once in each system, with the same state in all; config and complete curve
    equal those of the undisturbed trial with the same number; and the same trial is the best.

    Valid only for deterministic training, a searcher that does not learn (``random``) and a
    scheduler that stops no trial (``fifo``): seeds and trial number then determine config, curve
    and best trial.
    """
    found = read_trial_states(faulty.folder, client)
    assert_consistent_states(found)
    metric = quiet.config.leading_objective.metric
    numbers = [trial.number for trial in quiet.trials]
    there = [trial.number for trial in faulty.trials]
    assert there == numbers, f"trials {there} instead of {numbers}"
    for trial, wanted in zip(faulty.trials, quiet.trials, strict=True):
        actual = json.dumps(trial.result.config, sort_keys=True)
        config = json.dumps(wanted.result.config, sort_keys=True)
        assert actual == config, f"trial {trial.number} has config {actual}, not {config}"
        curve, own = wanted.curve(metric), trial.curve(metric)
        assert own == curve, f"trial {trial.number} reported {own}, not {curve}"
        tracked = dict(found[trial.trial_id].curve)
        assert tracked == curve, f"MLflow has {tracked} of trial {trial.number}, not {curve}"
    best, wanted_best = faulty.best, quiet.best
    assert best is not None, "no trial is the best"
    assert wanted_best is not None, "no trial is the best without faults"
    assert best.number == wanted_best.number, f"{best.number} is the best, not {wanted_best.number}"
