"""A thread that writes what others put, so that they never wait for the store."""

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tune_tf.secrets import masked
from tune_tf.tracking.names import one_line
from tune_tf.tracking.writing.run_update import PARENT, RunUpdate
from tune_tf.tracking.writing.spool import Spool
from tune_tf.tracking.writing.update_queue import PendingUpdate, UpdateQueue

_logger = logging.getLogger(__name__)

_FAILURES_OF_A_STORE_DOWN = 3
_CLOSING_DELAY_S = 2.0
_LOOK_AGAIN_S = 1.0
_GLANCE_S = 0.005
_LONGEST_REST_S = 2.0
_PATIENCE_S = 5.0
_PATIENCE_WITHOUT_SPOOL_S = 60.0
_ERROR_LENGTH = 200


class Sink(Protocol):
    """Where entries go. It is made, and called, in the writer's thread only.

    An entry may come a second time, whole or in part: after an error, and after a process was
    killed.
    """

    def write(self, entry: RunUpdate) -> None:
        """Write an entry, taking out of it what has been written."""

    @property
    def num_refused(self) -> int:
        """How many values the store will never take; they are taken out of the entry as well."""


@dataclass(eq=False)
class _Flush:
    """Someone who waits for all that was put to be written.

    Args:
        begun: Since when, on the monotonic clock, in seconds.
        ended: Set when there is no more to wait for.
        done: Whether all is written.
    """

    begun: float
    ended: threading.Event = field(default_factory=threading.Event)
    done: bool = False


class Writer:
    """Writes entries to a sink in a thread of its own, in batches, and tries again what fails.

    What is put within ``linger_s`` is merged for each run and written together. An error never
    reaches the caller, and nothing is given up before :meth:`close`: the writer says once that the
    store is away and once that it is back.

    With a spool every entry is on disk before :meth:`put` returns, and is read back from there, so
    that the memory taken does not grow with what waits, and a process that is killed loses none;
    what the store has not taken at the end is left there. Without one, or while its disk is full,
    entries wait in memory; when there is no more room :meth:`put` blocks. Nothing is dropped for
    want of room.

    Args:
        open_sink: Makes the sink; called in the thread, so that it may load what is heavy.
        spool: Keeps what is put until it is written, with what an earlier process left in it,
            which is written first. It is the writer's, which closes it.
        capacity: How many entries wait in memory before the thread takes them.
        backlog: How many reports the thread holds at most.
        linger_s: How long to gather before writing, in seconds.
        share: How much of a core the thread may take, as a part of 1; it gathers longer where
            writing costs more, up to 2 seconds, unless someone waits for it.
        delays_s: How long to wait before each further attempt, in seconds; the last one counts for
            all that follow.
        patience_s: How long to go on at the end without any success, in seconds; by default 5 with
            a spool and 60 without.
    """

    def __init__(
        self,
        open_sink: Callable[[], Sink],
        spool: Spool | None = None,
        *,
        capacity: int = 1000,
        backlog: int = 4000,
        linger_s: float = 0.5,
        share: float = 0.02,
        delays_s: Sequence[float] = (0.5, 2.0, 5.0, 15.0, 30.0),
        patience_s: float | None = None,
    ) -> None:
        self.lost = 0
        self._open_sink = open_sink
        self._sink: Sink | None = None
        self._backlog_limit = backlog
        self._linger_s = linger_s
        self._share = share
        self._rests_until = -math.inf
        self._delays_s = tuple(delays_s)
        default_s = _PATIENCE_S if spool is not None else _PATIENCE_WITHOUT_SPOOL_S
        self._patience_s = default_s if patience_s is None else patience_s
        self._backlog: dict[str, PendingUpdate] = {}
        self._succeeded = -math.inf
        self._outages = 0
        self._reported = False

        self._changed = threading.Condition()  # of what follows: several threads use it
        self._queue = UpdateQueue(spool, capacity, self._changed)
        self._idle = True
        self._flushes: list[_Flush] = []
        self._closing: float | None = None
        self._left_alone = False
        self._down = False
        self._last_error = ""
        self._thread = threading.Thread(target=self._run, name="tune_tf-tracking", daemon=True)
        self._thread.start()

    @property
    def last_error(self) -> str:
        """What the store or the way to it said last when it failed; empty if it never did."""
        return self._last_error

    @property
    def num_left(self) -> int:
        """How many entries the sink has not taken whole."""
        with self._changed:
            held = sum(held.count for held in self._backlog.copy().values())
            return held + self._queue.num_waiting

    def put(self, entry: RunUpdate) -> None:
        """Take an entry, which now is the writer's; blocks only while there is no room for it."""
        with self._changed:
            while not self._queue.put(entry):
                alive = self._thread.is_alive()
                if alive and self._queue.put_in_memory(entry):
                    break
                if self._left_alone or not alive:
                    self.lost += entry.size
                    return
                self._changed.notify_all()
                self._changed.wait(_LOOK_AGAIN_S)
            if self._idle:
                self._changed.notify_all()

    def unwritten(self) -> list[RunUpdate]:
        """Return what was put, may not be written yet and is in no spool; never waits."""
        with self._changed:
            return self._queue.unwritten()

    def flush(self, timeout_s: float | None = None) -> bool:
        """Wait until all that was put is written; return whether it was.

        Args:
            timeout_s: How long to wait, in seconds; by default as long as it goes on, and with a
                store that is down as long as the writer's patience.
        """
        flush = _Flush(time.monotonic())
        end = math.inf if timeout_s is None else time.monotonic() + timeout_s
        with self._changed:
            if not self._thread.is_alive():
                return self._queue.is_empty and not self._backlog
            self._flushes.append(flush)
            self._changed.notify_all()
        while self._thread.is_alive():
            left = end - time.monotonic()
            if flush.ended.wait(max(0.0, min(left, _LOOK_AGAIN_S))) or left <= 0:
                break
        return flush.done

    def hurry(self, until: Callable[[], object], timeout_s: float) -> None:
        """Write at once what was put, and wait for something to be so.

        Args:
            until: Returns whether it is so.
            timeout_s: How long to wait at most, in seconds. A store that is down, or that has taken
                everything, is not waited for.
        """
        flush = _Flush(time.monotonic())
        with self._changed:
            self._flushes.append(flush)
            self._changed.notify_all()
        while self._thread.is_alive() and not self._down and not until():
            if flush.ended.wait(_GLANCE_S) or time.monotonic() - flush.begun >= timeout_s:
                break
        with self._changed:
            if flush in self._flushes:
                self._flushes.remove(flush)

    def close(self, timeout_s: float | None = None) -> None:
        """Write all that was put, end the thread, and warn once if something is left.

        Args:
            timeout_s: How long to wait, in seconds; then the thread is left to itself.
        """
        begun = time.monotonic()
        with self._changed:
            self._closing = begun if self._closing is None else self._closing
            self._changed.notify_all()
        end = math.inf if timeout_s is None else begun + timeout_s
        while self._thread.is_alive() and time.monotonic() < end:
            # A request that hangs holds the thread, but not the end of the sweep.
            if self._down and self._is_hopeless(begun, time.monotonic() - _CLOSING_DELAY_S):
                break
            self._thread.join(max(0.0, min(end - time.monotonic(), _LOOK_AGAIN_S)))
        self._left_alone = True
        self._queue.close()
        if not self._reported:
            self._reported = True
            self._tell_what_is_left()

    # The thread.

    def _run(self) -> None:
        while True:
            with self._changed:
                self._wait()
            begun_s = time.thread_time()
            self._take()
            self._deliver()
            rest_s = (time.thread_time() - begun_s) / self._share
            self._rests_until = time.monotonic() + min(rest_s, _LONGEST_REST_S)
            if self._acknowledge():
                return

    def _wait(self) -> None:
        """Wait until something is due."""
        arrived: float | None = None
        while True:
            now = time.monotonic()
            due = min((held.due for held in self._backlog.values()), default=math.inf)
            hurry = self._closing is not None or self._flushes
            if not self._queue.is_empty and self._has_room():
                arrived = now if arrived is None else arrived
                hurried = hurry or self._queue.is_full
                gathered = max(arrived + self._linger_s, self._rests_until)
                due = min(due, now if hurried else gathered)
            elif hurry and not self._backlog:
                due = now
            if hurry:
                due = min(due, self._hurried(now))
            if due <= now:
                return
            self._idle = arrived is None
            self._changed.wait(None if due == math.inf else due - now)

    def _hurried(self, now: float) -> float:
        """Return when to write next, with someone waiting for the end of it."""
        for held in self._backlog.values():
            limit_s = min(self._delay_s(held), _CLOSING_DELAY_S) if held.attempts else 0.0
            held.due = max(min(held.due, now + limit_s), held.not_before)
        return min((held.due for held in self._backlog.values()), default=math.inf)

    def _has_room(self) -> bool:
        return sum(held.weight for held in self._backlog.values()) < self._backlog_limit

    def _take(self) -> None:
        """Take what waits, the oldest first, as far as there is room."""
        now = time.monotonic()
        while self._has_room() and (entries := self._queue.take()):
            for number, entry in entries:
                held = self._backlog.get(entry.run)
                if held is None:
                    held = self._backlog[entry.run] = PendingUpdate(now, number)
                held.take(number, entry)
        with self._changed:
            self._changed.notify_all()

    def _deliver(self) -> None:
        """Write what is due, the parent's last; a store that fails thrice running is down."""
        now = time.monotonic()
        due = [run for run, held in self._backlog.items() if held.due <= now]
        failures = 0
        error: Exception = RuntimeError()
        for run in sorted(due, key=lambda run: (run == PARENT, self._backlog[run].attempts)):
            if self._left_alone:
                return
            held = self._backlog[run]
            if held.settles and any(
                not other.only_artifacts for other in self._backlog.values() if other is not held
            ):
                # It takes for interrupted what the others have not ended yet.
                held.due = held.not_before = now + min(self._delays_s[0], _LOOK_AGAIN_S)
                continue
            if failures < _FAILURES_OF_A_STORE_DOWN:
                before = held.size
                try:
                    while held.entries:
                        self._opened().write(held.entries[0])
                        held.entries.popleft()
                except Exception as raised:  # noqa: BLE001 - training goes on whatever happens
                    error = raised
                    if held.size < before:  # a part of it was taken
                        held.attempts = 0
                        self._succeeded = time.monotonic()
                else:
                    failures = 0
                    self._done_with(run)
                    continue
            failures += 1
            self._failed(held, error)

    def _opened(self) -> Sink:
        if self._sink is None:
            self._sink = self._open_sink()
        return self._sink

    def _done_with(self, run: str) -> None:
        self._succeeded = time.monotonic()
        with self._changed:
            self._queue.written(run, self._backlog.pop(run).last)
        if self._down and not any(held.attempts for held in self._backlog.values()):
            self._down = False
            _logger.info("MLflow can be written to again; all that waited is being written")

    def _failed(self, held: PendingUpdate, error: Exception) -> None:
        held.attempts += 1
        held.due = time.monotonic() + self._delay_s(held)
        self._note_failure(error, first=held.attempts == 1)

    def _delay_s(self, held: PendingUpdate) -> float:
        return self._delays_s[min(held.attempts, len(self._delays_s)) - 1]

    def _note_failure(self, error: Exception, *, first: bool = False) -> None:
        self._last_error = one_line(masked(str(error)), _ERROR_LENGTH)
        _logger.debug("Writing to MLflow failed: %s: %s", type(error).__name__, self._last_error)
        if self._down or (first and self._outages):
            return  # a store that fails now and then is not worth a word each time
        self._down = True
        self._outages += 1
        _logger.warning("MLflow cannot be written to; training goes on: %s", self._last_error)

    def _acknowledge(self) -> bool:
        """Remove what is written from the spool and answer who waits; return whether to end."""
        with self._changed:
            held = [held.first for held in self._backlog.values()]
            self._queue.done_below(min([*held, self._queue.last_taken + 1]))
            done = not self._backlog and self._queue.is_empty
            now = time.monotonic()
            for flush in self._flushes.copy():
                if done or self._is_hopeless(flush.begun, now):
                    flush.done = done
                    flush.ended.set()
                    self._flushes.remove(flush)
            if self._left_alone:
                return True
            return self._closing is not None and (done or self._is_hopeless(self._closing, now))

    def _is_hopeless(self, begun: float, now: float) -> bool:
        failing = any(held.attempts for held in self._backlog.copy().values())
        return failing and now - max(begun, self._succeeded) >= self._patience_s

    def _tell_what_is_left(self) -> None:
        num_kept = self.num_left - self._queue.num_unwritten
        if (path := self._queue.spool_path) is not None and num_kept > 0:
            _logger.warning(
                "MLflow has not taken %d entries of the sweep%s; they are kept in %s, and "
                "delivered by:  sweep.py sync %s",
                num_kept,
                f" ({self._last_error})" if self._down else "",
                path,
                path.parent,
            )
        if self._sink is not None:
            self.lost += self._sink.num_refused
        if self._queue.num_unwritten and self._thread.is_alive():
            _logger.warning(
                "MLflow has not taken all of the sweep in time; its runs may be incomplete"
            )
        else:
            self.lost += sum(entry.size for entry in self.unwritten())
        if self.lost:
            _logger.warning(
                "%d values could not be written to MLflow and are lost there; the sweep itself "
                "has them in its results",
                self.lost,
            )
