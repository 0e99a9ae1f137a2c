"""Process that runs tasks on request, to time two processes in turns."""

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

Work = Callable[[Any], Any]


class WorkProcess:
    """Handle of a process with its own TensorFlow.

    Args:
        connection: To the far end.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def do(self, task: Any) -> Any:
        """Run a task and return its result.

        Raises:
            RuntimeError: The work failed; says why.
        """
        self._connection.send(task)
        succeeded, result = self._connection.recv()
        if not succeeded:
            raise RuntimeError(result)
        return result


@contextmanager
def work_process(make_work: Callable[[], Work]) -> Iterator[WorkProcess]:
    """Start a new process that creates its work function; end it on exit.

    Args:
        make_work: Called there, once; must be importable by name.
    """
    context = multiprocessing.get_context("spawn")
    near, far = context.Pipe()
    process = context.Process(target=_serve, args=(make_work, far), daemon=True)
    process.start()
    far.close()
    try:
        yield WorkProcess(near)
    finally:
        near.close()
        process.join(timeout=30)
        if process.is_alive():
            process.terminate()


def _serve(make_work: Callable[[], Work], connection: Connection) -> None:
    work = make_work()
    while True:
        try:
            task = connection.recv()
        except EOFError:
            return
        try:
            connection.send((True, work(task)))
        except Exception as error:  # noqa: BLE001  it is raised at the near end
            connection.send((False, f"{type(error).__name__}: {error}"))
