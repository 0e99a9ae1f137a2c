"""Threads of which one runs at a time, and a clock that only they move.

Whoever waits, sleeps or writes hands over to a thread that a random generator chooses; nothing else
decides who runs. The threads are the system's, so that unchanged code runs in them, but all except
one stand at a closed gate. Code under simulation gets the locks, events and threads of this module
in the place of Python's own.
"""

import _thread
import contextlib
import datetime as dt
import math
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

_BEGIN_S = 1_700_000_000.0
_POINT_S = 0.001
_SWITCH = 0.15


class Crash(BaseException):
    """The simulated process is dead: nothing of it happens any more."""


class StuckError(Exception):
    """Every thread waits for another one, or nothing has happened for too long."""


@dataclass(eq=False)
class _Turn:
    """A thread.

    Args:
        name: For messages.
        ready: Returns whether it can go on; None where it waits for a time only.
        until: When it goes on at the latest, in virtual seconds.
    """

    name: str
    daemon = True
    ready: Callable[[], bool] | None = None
    until: float = -math.inf
    done: bool = False
    gate: Any = field(default_factory=_thread.allocate_lock)
    over: Any = field(default_factory=_thread.allocate_lock)

    def can_run(self, now: float) -> bool:
        return not self.done and (self.until <= now or (self.ready is not None and self.ready()))


class Turns:
    """Decides which thread runs, and when the process dies.

    Args:
        rng: Chooses.
        max_points: Points after which a simulation is taken to be stuck.
    """

    def __init__(self, rng: random.Random, max_points: int = 20_000) -> None:
        self.rng = rng
        self.now = _BEGIN_S
        self.num_points = 0
        self.trace: list[str] = []
        self.dead = False
        self.at_point: Callable[[str], bool] = lambda label: False
        """Told of each point; returns whether the process dies there."""
        self._max_points = max_points
        self.errors: list[Exception] = []
        """What threads have raised."""
        self._unwinding = False
        self._turns: list[_Turn] = []
        self._current = self._main = _Turn("driver")

    @property
    def current(self) -> _Turn:
        """The thread that runs."""
        return self._current

    @property
    def in_thread(self) -> bool:
        """Whether another thread runs than the one that began the process."""
        return self._current is not self._main

    def begin_process(self) -> None:
        """Begin a process with the calling thread as its only one."""
        self.dead = self._unwinding = False
        self._main = self._current = _Turn("driver")
        self._main.gate.acquire()
        self._turns = [self._main]

    def end_process(self) -> None:
        """Unwind what is left of a dead process, or of one whose main thread has ended."""
        self.dead = self._unwinding = True
        for turn in self._turns[1:]:
            if not turn.done:
                self._current = turn
                turn.gate.release()
                turn.over.acquire()
        self._current = self._main

    def start(self, name: str, work: Callable[[], object]) -> _Turn:
        """Start a thread, which runs once it is chosen."""
        turn = _Turn(name)
        turn.gate.acquire()
        turn.over.acquire()
        self._turns.append(turn)
        # Not Python's own class, which makes locks of the kinds that this module replaces.
        _thread.start_new_thread(self._run, (turn, work))
        return turn

    def point(self, label: str, torn: Callable[[], object] | None = None) -> None:
        """Pass a point between two writes, where the process may die or another thread run.

        Args:
            label: What is about to be written.
            torn: Does a part of it; called now and then if the process dies here.
        """
        if self.dead:
            raise Crash
        self.now += _POINT_S
        self.num_points += 1
        self.trace.append(f"{self._current.name}:{label}")
        if self.num_points > self._max_points:
            raise StuckError(f"{self._max_points} writes, and no end; the last was {label}")
        if self.at_point(label):
            if torn is not None and self.rng.random() < 0.5:
                torn()
                self.trace.append("torn")
            self.dead = True
            raise Crash
        if len(self._turns) > 1 and self.rng.random() < _SWITCH:
            self.wait(until=self.now)

    def wait(self, ready: Callable[[], bool] | None = None, until: float = math.inf) -> None:
        """Let others run until something is so, or until a time."""
        if self.dead:
            raise Crash
        me = self._current
        me.ready, me.until = ready, until
        chosen = self._choose()
        if chosen is not me:
            self._current = chosen
            chosen.gate.release()
            me.gate.acquire()
        if self.dead:
            raise Crash

    def _choose(self) -> _Turn:
        while True:
            ready = [turn for turn in self._turns if turn.can_run(self.now)]
            if ready:
                return ready[0] if len(ready) == 1 else self.rng.choice(ready)
            wakes = min(turn.until for turn in self._turns if not turn.done)
            if wakes == math.inf:
                waiting = ", ".join(turn.name for turn in self._turns if not turn.done)
                raise StuckError(f"all wait for each other: {waiting}")
            self.now = wakes

    def _run(self, turn: _Turn, work: Callable[[], object]) -> None:
        turn.gate.acquire()
        try:
            if not self.dead:
                work()
        except Crash:
            pass
        except Exception as error:
            self.errors.append(error)
        turn.done = True
        if self._unwinding:
            turn.over.release()
            return
        self._turns.remove(turn)
        self._current = self._main if self.dead else self._choose()
        self._current.gate.release()


class Lock:
    """As ``threading.Lock`` and, where a thread may hold it several times, ``threading.RLock``.

    Args:
        turns: Who runs; None for the simulation that is under way.
        reentrant: Whether its holder may take it again.
    """

    def __init__(self, turns: Turns, *, reentrant: bool = False) -> None:
        self._turns = turns
        self._reentrant = reentrant
        self._holder: _Turn | None = None
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
        self._turn: _Turn | None = None

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
