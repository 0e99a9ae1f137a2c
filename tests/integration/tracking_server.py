"""MLflow's own tracking server on SQLite, which a test may kill and start again."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import closing


class TrackingServer:
    """A server of its own process group.

    Args:
        folder: Where its database, artifacts and log are.
        empty_store: A database that is made already, which takes MLflow seconds.
    """

    def __init__(self, folder, empty_store):
        self.folder = folder
        self.database = folder / "server.db"
        shutil.copy(empty_store, self.database)
        with closing(socket.socket()) as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.uri = f"http://127.0.0.1:{self.port}"
        self._process = None

    def start(self, timeout_s=240):
        arguments = {
            "--host": "127.0.0.1",
            "--port": str(self.port),
            "--workers": "1",
            "--backend-store-uri": f"sqlite:///{self.database}",
            "--artifacts-destination": str(self.folder / "artifacts"),
        }
        words = [word for pair in arguments.items() for word in pair]
        with (self.folder / "server.log").open("a") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "mlflow", "server", *words],
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
            )
        deadline = time.monotonic() + timeout_s
        while not self._answers():
            died = self._process.poll() is not None or time.monotonic() > deadline
            assert not died, (self.folder / "server.log").read_text()
            time.sleep(0.1)

    def kill(self):
        """End it at once, as a machine that loses its power does."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(240)
            self._process = None

    def _answers(self):
        try:
            with urllib.request.urlopen(f"{self.uri}/health", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False
