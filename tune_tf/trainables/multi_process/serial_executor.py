"""Acts that several threads ask for, done one after the other in one."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any


class SerialExecutor:
    """Does in a thread of its own what others ask for, in the order in which they ask.

    An act that raises is the last that counts: whoever waits then, or later, is told of it.

    Args:
        afterwards: Done after each act.
        name: Of the thread.

    Attributes:
        error: What an act raised, or :meth:`fail` was told; None again to go on.
    """

    def __init__(self, afterwards: Callable[[], None], name: str) -> None:
        self._afterwards = afterwards
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._waiting: list[tuple[Callable[[], bool], Future[None]]] = []
        self.error: BaseException | None = None

    def do(self, act: Callable[..., Any], *arguments: Any) -> Any:
        """Do something and return what it returns; not from the thread itself."""
        return self._thread.submit(self._done, act, *arguments).result()

    def hear(self, act: Callable[..., None], *arguments: Any) -> None:
        """Do something when its turn comes; from any thread."""
        with suppress(RuntimeError):  # it has ended
            self._thread.submit(self._done, act, *arguments)

    def wait(
        self, is_there: Callable[[], bool], meanwhile: Callable[[], None], every_s: float
    ) -> None:
        """Wait until something is the case; not from the thread itself.

        Args:
            is_there: Asked after each act.
            meanwhile: Done now and then.
            every_s: Seconds between.

        Raises:
            BaseException: What an act raised.
        """
        waiting: Future[None] = Future()
        self.do(self._waiting.append, (is_there, waiting))
        while not waiting.done():
            with suppress(TimeoutError):
                waiting.exception(timeout=every_s)
            if not waiting.done():
                self.do(meanwhile)
        waiting.result()

    def fail(self, error: BaseException) -> None:
        """Tell whoever waits of an error; the first one counts."""
        if self.error is None:
            self.error = error

    def end(self) -> None:
        """End the thread after the act that it is at."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _done(self, act: Callable[..., Any], *arguments: Any) -> Any:
        try:
            done = act(*arguments)
            self._afterwards()
        except Exception as error:  # noqa: BLE001  whoever waits raises it
            done = None
            self.fail(error)
        for is_there, waiting in list(self._waiting):
            if self.error is not None:
                waiting.set_exception(self.error)
            elif is_there():
                waiting.set_result(None)
            else:
                continue
            self._waiting.remove((is_there, waiting))
        return done
