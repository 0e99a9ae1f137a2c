"""Executor that runs the calls of several threads one by one."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any


class SerialExecutor:
    """Executor with one thread that runs calls in the order of submission.

    After a call has raised, all current and later waits raise its error.

    Args:
        afterwards: Function to run after each call.
        name: Name of the thread.

    Attributes:
        error: First error of a call or of :meth:`fail`; set it to None to continue.
    """

    def __init__(self, afterwards: Callable[[], None], name: str) -> None:
        self._afterwards = afterwards
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._waiting: list[tuple[Callable[[], bool], Future[None]]] = []
        self.error: BaseException | None = None

    def do(self, act: Callable[..., Any], *arguments: Any) -> Any:
        """Run a call and return its result; not for use in the thread itself."""
        return self._thread.submit(self._run, act, *arguments).result()

    def submit(self, act: Callable[..., None], *arguments: Any) -> None:
        """Submit a call without waiting; for use in any thread."""
        with suppress(RuntimeError):  # the executor has ended
            self._thread.submit(self._run, act, *arguments)

    def wait(
        self, is_met: Callable[[], bool], meanwhile: Callable[[], None], every_s: float
    ) -> None:
        """Wait for a condition, checked after each call; not for use in the thread itself.

        ``meanwhile`` runs every ``every_s`` seconds.

        Raises:
            BaseException: A call raised it.
        """
        waiting: Future[None] = Future()
        self.do(self._waiting.append, (is_met, waiting))
        while not waiting.done():
            with suppress(TimeoutError):
                waiting.exception(timeout=every_s)
            if not waiting.done():
                self.do(meanwhile)
        waiting.result()

    def fail(self, error: BaseException) -> None:
        """Let all waits raise an error; only the first error counts."""
        if self.error is None:
            self.error = error

    def end(self) -> None:
        """End the thread after its current call."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _run(self, act: Callable[..., Any], *arguments: Any) -> Any:
        try:
            result = act(*arguments)
            self._afterwards()
        except Exception as error:  # noqa: BLE001  raised by waiting callers
            result = None
            self.fail(error)
        for is_met, waiting in list(self._waiting):
            if self.error is not None:
                waiting.set_exception(self.error)
            elif is_met():
                waiting.set_result(None)
            else:
                continue
            self._waiting.remove((is_met, waiting))
        return result
