"""Child process that calls a function with a workload, and its result or the cause of its failure.

It loads TensorFlow, which the driver of a sweep never does.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
import tempfile
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from tune_tf.errors import TuneTfError, WorkloadError, message_lines

_TASK, _ANSWER, _OUTPUT = "task", "answer", "output"  # files of the process
_INSTALLED = (*sysconfig.get_paths().values(), str(Path(__file__).parents[1]), "<")
_REMEDIES = {
    "is outside the valid range of": "number the labels from 0, and give the last layer a unit for "
    "each class",
    "incompatible shape": "give keras.Input the shape of a row of load_data",
    "Shapes must be equal rank": "give labels and model outputs the same shape",
}
"""What to do, by a part of an error's text."""


class ChildProcess:
    """Process that calls a function; a context manager, which ends it.

    Args:
        what: What the process does, in messages: ``a trial of one batch``.
        function: Function of this package; its result is plain data.
        arguments: Its arguments.
        uses_gpus: Whether the process sees GPUs, which it shares with other processes.
        environment: Further environment variables.
    """

    def __init__(
        self,
        what: str,
        function: Callable[..., Any],
        *arguments: Any,
        uses_gpus: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        from ray import cloudpickle

        self._what = what
        self._folder = tempfile.TemporaryDirectory(prefix="tune-tf-measure-")
        folder = Path(self._folder.name)
        task = cloudpickle.dumps((sys.path, cloudpickle.dumps((function, arguments))))
        (folder / _TASK).write_bytes(task)
        hidden = {"CUDA_VISIBLE_DEVICES": "-1"}  # as a trial without GPUs
        shared = {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}  # the first trials may run meanwhile
        with (folder / _OUTPUT).open("wb") as output:
            self._process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-m", "tune_tf.measure.child_process", str(folder)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **(shared if uses_gpus else hidden), **(environment or {})},
            )

    def __enter__(self) -> Self:
        """Return the process, which runs."""
        return self

    def __exit__(self, *error: object) -> None:
        """Kill the process if it runs, and delete its files."""
        with self._folder:
            self._process.kill()
            self._process.wait()

    def wait(self, timeout_s: float) -> bool:
        """Wait for the end of the process; return False on timeout."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def result(self) -> Any:
        """Wait for the end of the process, and return the result of the function.

        Raises:
            WorkloadError: The function raised an error, or the process died.
        """
        folder, code = Path(self._folder.name), self._process.wait()
        if not (folder / _ANSWER).exists():
            lines = (folder / _OUTPUT).read_text(errors="replace").strip().splitlines()
            cause = " (killed: too little memory?)" if code == -signal.SIGKILL else ""
            raise WorkloadError(
                f"the process of {self._what} ended with code {code}{cause}: {' '.join(lines[-3:])}"
            )
        answer = json.loads((folder / _ANSWER).read_text())
        if "error" in answer:
            raise WorkloadError(f"{self._what} failed: {answer['error']}")
        return answer["result"]


def _error_text(error: Exception) -> str:
    """Return an error without values of tensors, with the line of the user's code, if any."""
    text = re.sub(r"\[\[.*\]\]", "[...]", " ".join(message_lines(str(error))))
    text += next((f": {remedy}" for part, remedy in _REMEDIES.items() if part in text), "")
    frames = traceback.extract_tb(error.__traceback__)
    own = [it for it in frames if not it.filename.startswith(_INSTALLED)]
    where = f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""
    kind = "" if isinstance(error, TuneTfError) else f"{type(error).__name__}: "
    return f"{kind}{text}{where}"


def _main(folder: str) -> None:
    import pickle

    task, answer = Path(folder, _TASK), Path(folder, _ANSWER)
    sys.path[:], call = pickle.loads(task.read_bytes())  # noqa: S301  written by the parent
    try:
        function, arguments = pickle.loads(call)  # noqa: S301  likewise
        with contextlib.redirect_stdout(sys.stderr):
            found = {"result": function(*arguments)}
    except Exception as error:  # noqa: BLE001  raised by the parent
        found = {"error": _error_text(error)}
    answer.write_text(json.dumps(found))


if __name__ == "__main__":
    _main(sys.argv[1])
