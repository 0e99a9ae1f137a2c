"""A thread that writes what others put in a queue, so that they never wait for the store."""

import logging
import math
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tune_tf.tracking.entry import PARENT, Entry

_logger = logging.getLogger(__name__)

_CLOSE = object()
_FAILURES_OF_A_STORE_DOWN = 3
_CLOSING_DELAY_S = 2.0
_LOOK_AGAIN_S = 1.0


class Sink(Protocol):
    """Where entries go. It is made, and called, in the writer's thread only."""

    def write(self, entry: Entry) -> None:
        """Write an entry, taking out of it what has been written."""

    def is_permanent(self, error: Exception) -> bool:
        """Return whether trying again would give the same error."""


@dataclass
class _Held:
    """An entry that waits to be written.

    Args:
        entry: What is left to be written.
        due: When to write it, on the monotonic clock, in seconds.
        number: Number of the last entry that was merged into it.
        attempts: How often writing has failed.
    """

    entry: Entry
    due: float
    number: int
    attempts: int = 0


class Writer:
    """Writes entries to a sink in a thread of its own, in batches, and tries again what fails.

    What is put within ``linger_s`` is merged for each run and written together. An error never
    reaches the caller: the first is logged as a warning, an entry that keeps failing is given up
    and counted, and :meth:`close` says how much that was. While the sink is slow or fails, the
    thread keeps taking entries up to ``backlog`` reports, then the queue fills and :meth:`put`
    blocks: nothing is dropped for want of room.

    Args:
        open_sink: Makes the sink; called in the thread, so that it may load what is heavy.
        capacity: How many entries the queue holds.
        backlog: How many reports the thread holds beside the queue.
        linger_s: How long to gather before writing, in seconds.
        delays_s: How long to wait before each further attempt, in seconds.
    """

    def __init__(
        self,
        open_sink: Callable[[], Sink],
        *,
        capacity: int = 1000,
        backlog: int = 20_000,
        linger_s: float = 0.5,
        delays_s: Sequence[float] = (0.5, 2.0, 5.0, 15.0, 30.0),
    ) -> None:
        self.lost = 0
        self._open_sink = open_sink
        self._sink: Sink | None = None
        self._queue: queue.Queue[object] = queue.Queue(capacity)
        self._backlog_limit = backlog
        self._linger_s = linger_s
        self._delays_s = tuple(delays_s)
        self._backlog: dict[str, _Held] = {}
        self._flushes: list[threading.Event] = []
        self._closing = False
        self._lock = threading.Lock()  # of what follows: both threads use it
        self._last_number = 0
        self._unwritten: dict[str, list[tuple[int, Entry]]] = {}
        self._warned = False
        self._reported = False
        self._thread = threading.Thread(target=self._run, name="tune_tf-tracking", daemon=True)
        self._thread.start()

    def put(self, entry: Entry) -> None:
        """Queue an entry, which now is the writer's; blocks only while the queue is full."""
        with self._lock:
            self._last_number += 1
            number = self._last_number
            self._unwritten.setdefault(entry.run, []).append((number, entry.copy()))
        if not self._enqueue((number, entry)):
            self.lost += entry.size

    def unwritten(self) -> list[Entry]:
        """Return what was put and may not be written yet; never waits for the sink."""
        with self._lock:
            numbered = [each for of_run in self._unwritten.values() for each in of_run]
            return [entry.copy() for _, entry in sorted(numbered, key=lambda each: each[0])]

    def flush(self, timeout_s: float | None = None) -> bool:
        """Wait until all that was put is written or given up; return whether that came in time."""
        done = threading.Event()
        if not self._enqueue(done):
            return True
        end = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while self._thread.is_alive():
            left = end - time.monotonic()
            if done.wait(max(0.0, min(left, _LOOK_AGAIN_S))) or left <= 0:
                break
        return done.is_set()

    def close(self, timeout_s: float | None = None) -> None:
        """Write all that was put, end the thread, and warn once if something could not be written.

        Args:
            timeout_s: How long to wait, in seconds; then the thread is left to itself.
        """
        if self._enqueue(_CLOSE):
            self._thread.join(timeout_s)
        if self._reported:
            return
        self._reported = True
        if self._thread.is_alive():
            _logger.warning(
                "MLflow has not taken all of the sweep within %.0f s; its runs may be incomplete",
                timeout_s,
            )
        elif self.lost:
            _logger.warning(
                "%d values could not be written to MLflow and are lost there; the sweep itself "
                "has them in its results",
                self.lost,
            )

    def _enqueue(self, item: object) -> bool:
        """Wait for room in the queue; return whether there is still a thread that empties it."""
        while self._thread.is_alive():
            try:
                self._queue.put(item, timeout=_LOOK_AGAIN_S)
            except queue.Full:
                continue
            return True
        return False

    def _run(self) -> None:
        while not (self._closing and not self._backlog and self._queue.empty()):
            self._gather()
            self._deliver()
            if not self._backlog:
                for done in self._flushes:
                    done.set()
                self._flushes.clear()

    def _gather(self) -> None:
        """Take what comes until a run is due, or until there is no more room."""
        while self._num_reports() < self._backlog_limit:
            now = time.monotonic()
            due = min((held.due for held in self._backlog.values()), default=None)
            if due is None and (self._closing or self._flushes):
                due = now
            try:
                if due is None:
                    item = self._queue.get()
                elif due > now:
                    item = self._queue.get(timeout=due - now)
                else:
                    item = self._queue.get_nowait()
            except queue.Empty:
                return
            if isinstance(item, tuple):
                number, entry = item
                self._take(number, entry, now)
            else:
                self._hurry(now)
                if isinstance(item, threading.Event):
                    self._flushes.append(item)
                else:
                    self._closing = True

    def _num_reports(self) -> int:
        return sum(len(held.entry.reports) for held in self._backlog.values())

    def _take(self, number: int, entry: Entry, now: float) -> None:
        held = self._backlog.get(entry.run)
        if held is not None:
            held.entry.merge(entry)
            held.number = number
        else:
            hurry = self._closing or self._flushes
            due = now if hurry else now + self._linger_s
            self._backlog[entry.run] = _Held(entry, due, number)

    def _hurry(self, now: float) -> None:
        for held in self._backlog.values():
            limit = _CLOSING_DELAY_S if held.attempts else 0.0
            held.due = min(held.due, now + limit)

    def _deliver(self) -> None:
        """Write what is due, the parent's last; a store that fails thrice running is down."""
        now = time.monotonic()
        due = [run for run, held in self._backlog.items() if held.due <= now]
        failures = 0
        error: Exception = RuntimeError()
        for run in sorted(due, key=lambda run: (run == PARENT, self._backlog[run].attempts)):
            if failures < _FAILURES_OF_A_STORE_DOWN:
                try:
                    self._opened().write(self._backlog[run].entry)
                except Exception as raised:  # noqa: BLE001 - training goes on whatever happens
                    error = raised
                else:
                    failures = 0
                    self._done_with(run)
                    continue
            failures += 1
            self._failed(run, error)

    def _done_with(self, run: str) -> None:
        last = self._backlog.pop(run).number
        with self._lock:
            left = [each for each in self._unwritten.pop(run, []) if each[0] > last]
            if left:
                self._unwritten[run] = left

    def _opened(self) -> Sink:
        if self._sink is None:
            self._sink = self._open_sink()
        return self._sink

    def _failed(self, run: str, error: Exception) -> None:
        if not self._warned:
            self._warned = True
            _logger.warning("MLflow cannot be written to; training goes on: %s", error)
        _logger.debug("Writing to MLflow failed", exc_info=error)
        held = self._backlog[run]
        permanent = self._sink is not None and self._sink.is_permanent(error)
        if permanent or held.attempts >= len(self._delays_s):
            self.lost += held.entry.size
            self._done_with(run)
            return
        delay_s = self._delays_s[held.attempts]
        held.attempts += 1
        hurry = self._closing or self._flushes
        held.due = time.monotonic() + (min(delay_s, _CLOSING_DELAY_S) if hurry else delay_s)
