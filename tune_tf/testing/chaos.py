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
from typing import TYPE_CHECKING, Protocol

from tune_tf.inspection import SweepView
from tune_tf.inspection.reported_results import RESULTS, read_last_result
from tune_tf.sweep.state.experiment_state import TuneState
from tune_tf.sweep.state.recovery import recover
from tune_tf.sweep_folder import SweepFolder
from tune_tf.testing.truth import TrialStates, assert_consistent_states, trial_states

if TYPE_CHECKING:
    import mlflow
    import psutil

_POLL_S = 0.05
_WITHOUT_RAYLET_S = 3  # then the driver is killed too, as when Ray is restarted
_MIN_DISTANCE = 0.01  # least fraction of the sweep between two kills
_LATEST = 0.9  # latest kill, as a fraction of the sweep: later, no trial may be running


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
        kind: ``driver``, ``trial``, ``raylet`` or ``server`` (of MLflow).
        at: Time, as the completed fraction of the sweep's iterations, from 0 to 1.
    """

    kind: str
    at: float


def draw_kills(counts: Mapping[str, int], seed: int) -> list[Kill]:
    """Return kills at random times of a sweep, in order; ``counts`` has their number by kind."""
    generator = random.Random(seed)
    kinds = [kind for kind, count in counts.items() for _ in range(count)]
    generator.shuffle(kinds)
    times = sorted(generator.uniform(0.02, 0.85) for _ in kinds)
    return [Kill(kind, at) for kind, at in zip(kinds, times, strict=True)]


class ChaosDrill:
    """Runner of a sweep from the command line that kills its processes.

    Args:
        command: Command, such as ``["tune-tf"]``.
        sweep_file: Sweep file; all its trials run to ``max_t``.
        folder: Working directory, which contains the sweep's ``storage_path``.
        server: The sweep's MLflow server; None if it is not killed.
        seed: Seed of the choice between several processes.
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
        self._random = random.Random(seed)
        self._timeout_s = timeout_s
        self._driver: subprocess.Popen[bytes]
        self._restart: threading.Thread | None = None  # of the server
        self._output = folder / "chaos.log"

    def run(self, kills: Sequence[Kill] = ()) -> SweepView:
        """Run the sweep to its end, with kills on the way.

        Raises:
            AssertionError: The sweep makes no progress, or fails other than by a kill.
        """
        self._start("run", str(self._sweep_file))
        try:
            for kill in kills:
                self._wait(min(_LATEST, max(kill.at, self._progress() + _MIN_DISTANCE)))
                self._log(f"killing the {kill.kind} at {self._progress():.2f} (from {kill.at:.2f})")
                getattr(self, f"_kill_{kill.kind}")()
            self._wait()
        finally:
            if self._restart is not None:
                self._restart.join()
            if self._driver.poll() is None:
                self._driver.kill()
                self._driver.wait()
        return SweepView.open(self._sweep_folder)

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

    def _kill_raylet(self) -> None:
        self._process("raylet").kill()
        with suppress(subprocess.TimeoutExpired):
            self._driver.wait(_WITHOUT_RAYLET_S)  # Ray eventually ends a driver without a raylet
        self._kill_driver()

    def _kill_trial(self) -> None:
        self._process("ray::", "Trainable").kill()

    def _kill_server(self) -> None:
        server, earlier = self._server, self._restart
        assert server is not None, "there is no server to kill"

        def restart() -> None:
            if earlier is not None:
                earlier.join()
            server.kill()
            server.start()

        self._restart = threading.Thread(target=restart)
        self._restart.start()  # the sweep continues meanwhile

    def _log(self, text: str) -> None:
        with self._output.open("a") as log:
            log.write(f"[{time.strftime('%H:%M:%S')}] {text}\n")

    def _start(self, *arguments: str) -> None:
        with self._output.open("ab") as log:
            self._driver = subprocess.Popen(  # noqa: S603 - the command is the caller's
                [*self._command, *arguments],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _process(self, *words: str) -> "psutil.Process":
        """Return a process of the sweep whose command contains all ``words``."""
        import psutil  # a dependency of Ray

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
    disturbed: SweepView, undisturbed: SweepView, client: "mlflow.MlflowClient"
) -> None:
    """Assert that a disturbed sweep has the results of an undisturbed one.

    Every trial exists once in each system, with the same state in all; config and complete curve
    equal those of the undisturbed trial with the same number; and the same trial is the best.

    Valid only for deterministic training, a searcher that does not learn (``random``) and a
    scheduler that stops no trial (``fifo``): seeds and trial number then determine config, curve
    and best trial.
    """
    states = read_trial_states(disturbed.folder, client)
    assert_consistent_states(states)
    metric = undisturbed.config.leading_objective.metric
    expected_numbers = [trial.number for trial in undisturbed.trials]
    numbers = [trial.number for trial in disturbed.trials]
    assert numbers == expected_numbers, f"trials {numbers} instead of {expected_numbers}"
    for trial, expected in zip(disturbed.trials, undisturbed.trials, strict=True):
        config = json.dumps(trial.result.config, sort_keys=True)
        expected_config = json.dumps(expected.result.config, sort_keys=True)
        assert config == expected_config, f"trial {trial.number}: {config}, not {expected_config}"
        curve, expected_curve = trial.curve(metric), expected.curve(metric)
        assert curve == expected_curve, f"trial {trial.number}: {curve}, not {expected_curve}"
        tracked = dict(states[trial.trial_id].curve)
        assert tracked == curve, f"MLflow has {tracked} of trial {trial.number}, not {curve}"
    best, expected_best = disturbed.best, undisturbed.best
    assert best is not None, "no trial is the best"
    assert expected_best is not None, "no trial is the best without kills"
    assert best.number == expected_best.number, f"best: {best.number}, not {expected_best.number}"
