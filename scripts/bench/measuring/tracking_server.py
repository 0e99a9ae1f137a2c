"""MLflow tracking server on this machine for the duration of a benchmark."""

import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PATIENCE_S = 120


@contextmanager
def tracking_server(folder: Path) -> Iterator[tuple[str, Path]]:
    """Start a server with a new SQLite file; yield its address and the file.

    Args:
        folder: Where the file, the artifacts and the server's log go.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    database = (folder / "server.db").absolute()
    arguments = {
        "--host": "127.0.0.1",
        "--port": str(port),
        "--workers": "1",
        "--backend-store-uri": f"sqlite:///{database}",
        "--artifacts-destination": str(folder.absolute() / "server-artifacts"),
    }
    words = [word for pair in arguments.items() for word in pair]
    with (folder / "server.log").open("w") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "mlflow", "server", *words], stdout=log, stderr=log
        )
    uri = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + _PATIENCE_S
        while not _answers(f"{uri}/health"):
            if server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((folder / "server.log").read_text())
            time.sleep(0.2)
        yield uri, database
    finally:
        server.terminate()
        server.wait(30)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False
