"""Results of a sweep whose processes are killed many times.

A sweep runs once without faults. Then it runs again and again, each time with other kills at other
moments: of the driver, of trials' processes, of Ray's own process of the machine, and of the MLflow
server that it is tracked to; after a kill of the driver or of Ray it is resumed. Each time every
trial has to stand once in Tune, Optuna and MLflow, in the same state, with the same curve as
without faults, and the same trial has to be the best.
"""

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import mlflow
from measuring.summary import Target, print_summary, print_table

from tune_tf.testing.chaos import ChaosDrill, assert_same_as_undisturbed, draw_kills

_COMMAND = [sys.executable, str(Path(__file__).parents[1] / "sweep.py")]
_PATIENCE_S = 300
_TARGETS = {"rounds_wrong": Target(0, "at most")}
_SWEEP = """\
name: chaos
workload: tune_tf.workloads.digits:DigitsCNN
objective: {{metric: val_loss, mode: min}}
space:
  learning_rate: {{loguniform: [1.0e-4, 1.0e-1]}}
  filters:       {{choice: [8, 16]}}
  batch_size:    64
searcher: {{sampler: random}}
scheduler: {{name: fifo, max_t: 20}}
resources: {{cpus: 1}}
max_concurrent_trials: 2
max_failures: 100
checkpoint_interval_s: 0
budget: {{num_samples: {num_trials}}}
mlflow: {mlflow}
"""


class _Server:
    """MLflow server on a SQLite file, in its own process group."""

    def __init__(self, folder: Path, port: int) -> None:
        self.uri = f"http://127.0.0.1:{port}"
        self._log = folder / "server.log"
        self._process: subprocess.Popen[bytes] | None = None
        store = ["--backend-store-uri", f"sqlite:///{folder / 'server.db'}"]
        artifacts = ["--artifacts-destination", str(folder / "artifacts")]
        address = ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
        self._words = ["-m", "mlflow", "server", *address, *store, *artifacts]

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, *self._words], stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + _PATIENCE_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(self._log.read_text())
            time.sleep(0.2)

    def kill(self) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.uri}/health", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


def main() -> None:
    """Run the rounds; print a line for each, and the number of wrong ones."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--trials", type=int, default=24)
    for kind, count in {"driver": 6, "raylet": 4, "trial": 20, "server": 6}.items():
        parser.add_argument(f"--{kind}", type=int, default=count, help=f"kills of the {kind}")
    parser.add_argument("--quick", action="store_true", help="smoke run: one round, few kills")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--port", type=int, help="of the MLflow server; any that is free")
    given = parser.parse_args()
    counts = {kind: getattr(given, kind) for kind in ("driver", "raylet", "trial", "server")}
    if given.quick:
        given.rounds, given.trials = 1, 12
        counts = {"driver": 2, "raylet": 1, "trial": 5, "server": 2}
    rows, wrong, began = [], 0, time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        server = _Server(root, given.port or _free_port())
        server.start()
        try:
            quiet = _drill(root / "quiet", given.trials, "null", None, 0).run()
            for number in range(given.rounds):
                seed, start = given.seed + number, time.monotonic()
                tracked = f"{{tracking_uri: {server.uri!r}, experiment_name: round-{number}}}"
                drill = _drill(root / f"round-{number}", given.trials, tracked, server, seed)
                reported = "as without faults"
                try:
                    faulty = drill.run(draw_kills(counts, seed))
                    assert_same_as_undisturbed(faulty, quiet, mlflow.MlflowClient(server.uri))
                except AssertionError as error:
                    wrong += 1
                    reported = str(error)
                took = f"{time.monotonic() - start:.0f}"
                rows.append((str(number), str(sum(counts.values())), took, reported[:100]))
        finally:
            server.kill()
    print_table(("round", "kills", "seconds", "outcome"), rows)
    values = {"rounds_wrong": float(wrong), "seconds": time.monotonic() - began}
    print_summary("chaos", values, _TARGETS, kills=counts, trials=given.trials)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _drill(
    folder: Path, num_trials: int, tracked: str, server: _Server | None, seed: int
) -> ChaosDrill:
    folder.mkdir()
    file = folder / "chaos.yaml"
    file.write_text(_SWEEP.format(num_trials=num_trials, mlflow=tracked))
    return ChaosDrill(_COMMAND, file, folder, server, seed=seed, timeout_s=_PATIENCE_S)


if __name__ == "__main__":
    main()
