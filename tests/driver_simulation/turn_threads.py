"""Locks, events, threads and clocks that take the place of Python's own in a simulation."""

import contextlib
import datetime as dt
import math
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from turns import Turn, Turns


class Lock:
    """As ``threading.Lock`` and, where a thread may hold it several times, ``threading.RLock``.

    Args:
        turns: Who runs; None for the simulation that is under way.
        reentrant: Whether its holder may take it again.
    """

    def __init__(self, turns: Turns, *, reentrant: bool = False) -> None:
        self._turns = turns
        self._reentrant = reentrant
        self._holder: Turn | None = None
        self._depth = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take it."""
        turns = self._turns
        me = turns.current
        if turns.dead:
            return True
        until = math.inf if timeout < 0 else turns.now + timeout
        while self._holder is not None and not (self._reentrant and self._holder is me):
            if not blocking or turns.now >= until:
                return False
            turns.wait(lambda: self._holder is None, until)
        self._holder = me
        self._depth += 1
        return True

    def release(self) -> None:
        """Give it free."""
        self._depth -= 1
        if self._depth <= 0:
            self._holder, self._depth = None, 0

    def locked(self) -> bool:
        """Return whether it is held."""
        return self._holder is not None

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()


class Condition:
    """As ``threading.Condition``.

    Args:
        turns: Who runs.
        lock: Its lock.
    """

    def __init__(self, turns: Turns, lock: Lock | None = None) -> None:
        self._turns = turns
        self._lock = lock or Lock(turns, reentrant=True)
        self._told = 0
        self.acquire, self.release = self._lock.acquire, self._lock.release

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until :meth:`notify_all` is called; return whether it was."""
        told = self._told
        until = math.inf if timeout is None else self._turns.now + timeout
        depth, self._lock._depth = self._lock._depth, 1
        self._lock.release()
        self._turns.wait(lambda: self._told != told, until)
        self._lock.acquire()
        self._lock._depth = depth
        return self._told != told

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait until something is so."""
        until = math.inf if timeout is None else self._turns.now + timeout
        while not predicate():
            if self._turns.now >= until:
                return False
            self.wait(None if until == math.inf else until - self._turns.now)
        return True

    def notify_all(self) -> None:
        """Wake who waits."""
        self._told += 1

    def notify(self, n: int = 1) -> None:
        """Wake all who wait: who waits must look again anyway."""
        self._told += 1

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()


class Event:
    """As ``threading.Event``.

    Args:
        turns: Who runs.
    """

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._is_set = False

    def is_set(self) -> bool:
        """Return whether it is set."""
        return self._is_set

    def set(self) -> None:
        """Set it."""
        self._is_set = True

    def clear(self) -> None:
        """Unset it."""
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set; return whether it is."""
        until = math.inf if timeout is None else self._turns.now + timeout
        if not self._is_set:
            self._turns.wait(self.is_set, until)
        return self._is_set


class Thread:
    """As ``threading.Thread``.

    Args:
        turns: Who runs.
        target: What it does.
        name: For messages.
        args: What ``target`` is called with.
        kwargs: What it is called with, by name.
        daemon: Whether the process ends without it.
    """

    def __init__(
        self,
        turns: Turns,
        *,
        target: Callable[..., object],
        name: str = "thread",
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        daemon: bool | None = None,
    ) -> None:
        self.name, self.daemon = name, daemon
        self._turns = turns
        self._work = lambda: target(*args, **(kwargs or {}))
        self._turn: Turn | None = None

    def start(self) -> None:
        """Have it chosen from now on."""
        self._turn = self._turns.start(self.name, self._work)

    def is_alive(self) -> bool:
        """Return whether it has begun and not ended."""
        return self._turn is not None and not self._turn.done

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end."""
        until = math.inf if timeout is None else self._turns.now + timeout
        if self.is_alive():
            self._turns.wait(lambda: not self.is_alive(), until)


class _Clock:
    """Python's clocks: the virtual one in a simulation, otherwise the system's."""

    def __init__(self) -> None:
        self.turns: Turns | None = None

    def install(self) -> None:
        """Take the place of Python's clocks; before anything keeps a reference to them."""
        for name, scale, kind in (
            ("time", 1, float),
            ("time_ns", 1_000_000_000, int),
            ("monotonic", 1, float),
            ("monotonic_ns", 1_000_000_000, int),
            ("perf_counter", 1, float),
            ("thread_time", 1, float),
        ):
            setattr(time, name, self._clock(getattr(time, name), scale, kind))
        real_sleep = time.sleep

        def sleep(seconds: float) -> None:
            turns = self.turns
            if turns is None:
                real_sleep(seconds)
            else:
                turns.wait(until=turns.now + seconds)

        time.sleep = sleep

    def _clock(self, real: Callable[[], Any], scale: int, kind: type) -> Callable[[], Any]:
        def now() -> Any:
            turns = self.turns
            return real() if turns is None else kind(turns.now * scale)

        return now


CLOCK = _Clock()


class VirtualDatetime(dt.datetime):
    """Python's ``datetime`` by the virtual clock."""

    @classmethod
    def now(cls, tz: dt.tzinfo | None = None) -> Any:
        """Return the time."""
        return dt.datetime.fromtimestamp(time.time(), tz)

    @classmethod
    def today(cls) -> Any:
        """Return the time."""
        return cls.now()


@contextlib.contextmanager
def in_turns(turns: Turns) -> Iterator[None]:
    """Have Python's threads and clocks be those of a simulation."""
    kinds = {
        "Thread": lambda *_, **options: Thread(turns, **options),
        "Lock": lambda: Lock(turns),
        "RLock": lambda: Lock(turns, reentrant=True),
        "Condition": lambda lock=None: Condition(turns, lock),
        "Event": lambda: Event(turns),
        "current_thread": lambda: turns.current if turns.in_thread else threading.main_thread(),
    }
    real = {name: getattr(threading, name) for name in kinds}
    for name, kind in kinds.items():
        setattr(threading, name, kind)
    CLOCK.turns = turns
    try:
        yield
    finally:
        CLOCK.turns = None
        for name, kind in real.items():
            setattr(threading, name, kind)
