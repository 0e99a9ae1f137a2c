"""Child process that calls a function with a workload, and its result or the cause of its failure.

It loads TensorFlow, which the driver of a sweep never does.
"""

import os
import pickle
import re
import signal
import subprocess
import sys
import sysconfig
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from tune_tf.errors import InvalidSettingsError, TuneTfError, WorkloadError, message_lines

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
        function: Function of this package; its result can be pickled.
        arguments: Its arguments.
        uses_gpus: Whether the process sees GPUs, which it shares with other processes.
    """

    def __init__(
        self, what: str, function: Callable[..., Any], *arguments: Any, uses_gpus: bool = False
    ) -> None:
        from ray import cloudpickle

        self._what = what
        self._answer = tempfile.TemporaryFile()  # noqa: SIM115  closed by __exit__
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  likewise
        hidden = {"CUDA_VISIBLE_DEVICES": "-1"}  # as a trial without GPUs
        shared = {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}  # the first trials may run meanwhile
        with tempfile.TemporaryFile() as task:
            cloudpickle.dump((sys.path, what, cloudpickle.dumps((function, arguments))), task)
            task.seek(0)
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tune_tf.measure.child_process"],
                stdin=task,
                stdout=self._answer,
                stderr=self._output,
                env={**os.environ, **(shared if uses_gpus else hidden)},
            )

    def __enter__(self) -> Self:
        """Return the process, which runs."""
        return self

    def __exit__(self, *error: object) -> None:
        """Kill the process if it runs, and delete its files."""
        with self._answer, self._output:
            self._process.kill()
            self._process.wait()

    def result(self, timeout_s: float | None = None) -> Any:
        """Wait for the end of the process, and return the result of the function.

        Raises:
            WorkloadError: The function raised an error, or the process died.
            InvalidSettingsError: The function raised it.
            subprocess.TimeoutExpired: The process is still running.
        """
        code = self._process.wait(timeout_s)
        for file in (self._answer, self._output):
            file.seek(0)
        if answer := self._answer.read():
            result, error = pickle.loads(answer)  # noqa: S301  written by the child
            if error is not None:
                raise error
            return result
        lines = self._output.read().decode(errors="replace").strip().splitlines()
        cause = " (killed: too little memory?)" if code == -signal.SIGKILL else ""
        raise WorkloadError(
            f"the process of {self._what} ended with code {code}{cause}: {' '.join(lines[-3:])}"
        )


def _error_text(error: Exception) -> str:
    """Return an error without values of tensors, with the line of the user's code, if any."""
    text = re.sub(r"\[\[.*\]\]", "[...]", " ".join(message_lines(str(error))))
    text += next((f": {remedy}" for part, remedy in _REMEDIES.items() if part in text), "")
    frames = traceback.extract_tb(error.__traceback__)
    own = [it for it in frames if not it.filename.startswith(_INSTALLED)]
    where = f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""
    kind = "" if isinstance(error, TuneTfError) else f"{type(error).__name__}: "
    return f"{kind}{text}{where}"


def _main() -> None:
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a workload prints is no answer
    sys.path[:], what, call = pickle.load(sys.stdin.buffer)  # noqa: S301  written by the parent
    found: tuple[Any, Exception | None]
    try:
        function, arguments = pickle.loads(call)  # noqa: S301  likewise
        found = function(*arguments), None
    except InvalidSettingsError as error:
        found = None, error
    except Exception as error:  # noqa: BLE001  raised by the parent
        found = None, WorkloadError(f"{what} failed: {_error_text(error)}")
    with answer:
        pickle.dump(found, answer)


if __name__ == "__main__":
    _main()
