"""Threads of which one runs at a time, and a clock that only they move.

Whoever waits, sleeps or writes hands over to a thread that a random generator chooses; nothing else
decides who runs. The threads are the system's, so that unchanged code runs in them, but all except
one stand at a closed gate. Code under simulation gets the locks, events and threads of
:mod:`turn_threads` in the place of Python's own.
"""

import _thread
import math
import random
from collections.abc import Callable
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
class Turn:
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
        self._turns: list[Turn] = []
        self._current = self._main = Turn("driver")

    @property
    def current(self) -> Turn:
        """The thread that runs."""
        return self._current

    @property
    def in_thread(self) -> bool:
        """Whether another thread runs than the one that began the process."""
        return self._current is not self._main

    def begin_process(self) -> None:
        """Begin a process with the calling thread as its only one."""
        self.dead = self._unwinding = False
        self._main = self._current = Turn("driver")
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

    def start(self, name: str, work: Callable[[], object]) -> Turn:
        """Start a thread, which runs once it is chosen."""
        turn = Turn(name)
        turn.gate.acquire()
        turn.over.acquire()
        self._turns.append(turn)
        # Not Python's own class, which makes locks of the kinds that turn_threads replaces.
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

    def _choose(self) -> Turn:
        while True:
            ready = [turn for turn in self._turns if turn.can_run(self.now)]
            if ready:
                return ready[0] if len(ready) == 1 else self.rng.choice(ready)
            wakes = min(turn.until for turn in self._turns if not turn.done)
            if wakes == math.inf:
                waiting = ", ".join(turn.name for turn in self._turns if not turn.done)
                raise StuckError(f"all wait for each other: {waiting}")
            self.now = wakes

    def _run(self, turn: Turn, work: Callable[[], object]) -> None:
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
