"""Background thread that writes queued updates, with retries."""

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tune_tf.secrets import mask_secrets
from tune_tf.tracking.names import one_line
from tune_tf.tracking.writing.run_update import PARENT, RunUpdate
from tune_tf.tracking.writing.spool import Spool
from tune_tf.tracking.writing.update_queue import PendingUpdate, UpdateQueue

if TYPE_CHECKING:
    from tune_tf.tracking.runs import SweepRuns

_logger = logging.getLogger(__name__)

_FAILURES_OF_A_STORE_DOWN = 3
_CLOSING_DELAY_S = 2.0
_LONG_POLL_S = 1.0
_LONGEST_REST_S = 2.0
_PATIENCE_S = 5.0
_PATIENCE_WITHOUT_SPOOL_S = 60.0
_ERROR_LENGTH = 200
_SHARE = 0.02  # of a core, at most, for the thread


class BackgroundWriter:
    """Background thread that writes updates to MLflow in batches and retries failures.

    Updates put within ``linger_s`` are merged per run. Errors never reach the caller, and retries
    end only after :meth:`close`; the log has outages of the store.

    With a spool, an update is on disk before :meth:`put` returns: memory does not grow with the
    backlog, a killed process loses nothing, and unwritten updates stay on disk at the end. Without
    one, or while its disk is full, updates wait in memory, and :meth:`put` blocks at the limit.

    Args:
        open_runs: Opens the sweep's runs, in the thread. After an error or a kill, an update may be
            written to them again, in whole or in part.
        spool: Storage of unwritten updates, closed by the writer.
        capacity: Most updates in memory before the thread takes them.
        backlog: Most updates that the thread takes.
        linger_s: Seconds to collect updates before a write.
        delays_s: Seconds before each retry; the last one repeats.
        patience_s: Seconds to retry at the end without any success; by default 5 with a spool and
            60 without.
    """

    def __init__(
        self,
        open_runs: "Callable[[], SweepRuns]",
        spool: Spool | None = None,
        *,
        capacity: int = 1000,
        backlog: int = 4000,
        linger_s: float = 0.5,
        delays_s: Sequence[float] = (0.5, 2.0, 5.0, 15.0, 30.0),
        patience_s: float | None = None,
    ) -> None:
        self.lost = 0
        """Number of values that were not written."""
        self.last_error = ""
        """Text of the last error; empty without one."""
        self._open_runs = open_runs
        self.runs: SweepRuns | None = None
        """The sweep's runs, once opened."""
        self._backlog_limit = backlog
        self._linger_s = linger_s
        self._resting_until = -math.inf
        self._delays_s = tuple(delays_s)
        default_s = _PATIENCE_S if spool is not None else _PATIENCE_WITHOUT_SPOOL_S
        self._patience_s = default_s if patience_s is None else patience_s
        self._backlog: dict[str, PendingUpdate] = {}
        self._succeeded = -math.inf
        self._has_failed = False

        # Guards the attributes below, which several threads use.
        self._changed = threading.Condition()
        self._queue = UpdateQueue(spool, capacity, self._changed)
        self._spool_path = spool.path if spool is not None else None
        self._idle = True
        self._is_done = self._queue.is_empty
        self._closing: float | None = None
        self._abandoned = False
        self._is_down = False
        self._thread = threading.Thread(target=self._run, name="tune_tf-tracking", daemon=True)
        self._thread.start()

    @property
    def num_left(self) -> int:
        """Number of updates not completely written."""
        with self._changed:
            num_pending = sum(pending.count for pending in self._backlog.copy().values())
            return num_pending + self._queue.num_waiting

    def put(self, update: RunUpdate) -> None:
        """Queue an update, which the writer then owns; block while memory is full."""
        with self._changed:
            while not self._queue.put(update):
                if self._abandoned or not self._thread.is_alive():
                    self.lost += update.size
                    return
                self._changed.notify_all()
                self._changed.wait(_LONG_POLL_S)
            self._is_done = False
            if self._idle:
                self._changed.notify_all()

    def unwritten(self) -> list[RunUpdate]:
        """Return the possibly unwritten updates outside the spool, without waiting."""
        with self._changed:
            return self._queue.unwritten()

    def close(self, timeout_s: float | None = None) -> None:
        """Write all updates, stop the thread, and warn once about unwritten ones.

        The thread is abandoned after ``timeout_s`` seconds.
        """
        if self._abandoned:
            return
        start = time.monotonic()
        with self._changed:
            self._closing = start
            self._changed.notify_all()
        end = math.inf if timeout_s is None else start + timeout_s
        while self._thread.is_alive() and time.monotonic() < end:
            # A hanging request blocks the thread, but must not block the end of the sweep.
            if self._is_down and self._is_hopeless(start, time.monotonic() - _CLOSING_DELAY_S):
                break
            self._thread.join(max(0.0, min(end - time.monotonic(), _LONG_POLL_S)))
        self._abandoned = True
        self._queue.close()
        self._warn_of_unwritten()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._wait()
            start_s = time.thread_time()
            self._take()
            self._deliver()
            rest_s = (time.thread_time() - start_s) / _SHARE
            self._resting_until = time.monotonic() + min(rest_s, _LONGEST_REST_S)
            if self._acknowledge():
                return

    def _wait(self) -> None:
        arrived: float | None = None
        while True:
            now = time.monotonic()
            due = min((pending.due for pending in self._backlog.values()), default=math.inf)
            hurry = self._closing is not None
            if not self._queue.is_empty and self._has_room():
                arrived = now if arrived is None else arrived
                is_urgent = hurry or self._queue.is_full
                end_of_linger = max(arrived + self._linger_s, self._resting_until)
                due = min(due, now if is_urgent else end_of_linger)
            elif not self._backlog and (hurry or not self._is_done):
                due = now
            if hurry:
                due = min(due, self._urgent_due(now))
            if due <= now:
                return
            self._idle = arrived is None
            self._changed.wait(None if due == math.inf else due - now)

    def _urgent_due(self, now: float) -> float:
        """Return the time of the next write once the writer is to end."""
        for pending in self._backlog.values():
            limit_s = min(self._delay_s(pending), _CLOSING_DELAY_S) if pending.attempts else 0.0
            pending.due = max(min(pending.due, now + limit_s), pending.not_before)
        return min((pending.due for pending in self._backlog.values()), default=math.inf)

    def _has_room(self) -> bool:
        return sum(pending.count for pending in self._backlog.values()) < self._backlog_limit

    def _take(self) -> None:
        now = time.monotonic()
        while self._has_room() and (updates := self._queue.take()):
            for number, update in updates:
                pending = self._backlog.get(update.run)
                if pending is None:
                    pending = self._backlog[update.run] = PendingUpdate(now, number)
                pending.add(number, update)
        with self._changed:
            self._changed.notify_all()

    def _deliver(self) -> None:
        """Write due updates, the parent's last; stop after three failures in a row."""
        now = time.monotonic()
        due_runs = [run for run, pending in self._backlog.items() if pending.due <= now]
        failures = 0
        error: Exception = RuntimeError()
        for run in sorted(due_runs, key=lambda run: (run == PARENT, self._backlog[run].attempts)):
            if self._abandoned:
                return
            pending = self._backlog[run]
            others = (each for each in self._backlog.values() if each is not pending)
            if pending.reconciles and not all(each.has_only_artifacts for each in others):
                # It would mark runs as interrupted that the other updates have not ended yet.
                pending.due = pending.not_before = now + min(self._delays_s[0], _LONG_POLL_S)
                continue
            if failures < _FAILURES_OF_A_STORE_DOWN:
                try:
                    self._write(pending)
                except Exception as raised:  # noqa: BLE001 - training continues after any error
                    error = raised
                else:
                    failures = 0
                    continue
            failures += 1
            self._postpone(pending, error)

    def _write(self, pending: PendingUpdate) -> None:
        size_before, run = pending.size, pending.updates[0].run
        try:
            while pending.updates:
                if self.runs is None:
                    self.runs = self._open_runs()
                self.runs.write(pending.updates[0])
                pending.updates.popleft()
        except Exception:
            if pending.size < size_before:  # a part of it was written
                pending.attempts = 0
                self._succeeded = time.monotonic()
            raise
        self._succeeded = time.monotonic()
        with self._changed:
            self._queue.mark_written(run, self._backlog.pop(run).last)
        if self._is_down and not any(other.attempts for other in self._backlog.values()):
            self._is_down = False
            _logger.info("MLflow is available again; writing the backlog")

    def _postpone(self, pending: PendingUpdate, error: Exception) -> None:
        pending.attempts += 1
        pending.due = time.monotonic() + self._delay_s(pending)
        self.last_error = one_line(mask_secrets(str(error)), _ERROR_LENGTH)
        _logger.debug("Writing to MLflow failed: %s: %s", type(error).__name__, self.last_error)
        if self._is_down or (pending.attempts == 1 and self._has_failed):
            return  # warn only once about intermittent failures
        self._is_down = self._has_failed = True
        _logger.warning("MLflow is not available; training continues: %s", self.last_error)

    def _delay_s(self, pending: PendingUpdate) -> float:
        return self._delays_s[min(pending.attempts, len(self._delays_s)) - 1]

    def _acknowledge(self) -> bool:
        """Remove written updates from the spool; return whether to stop."""
        with self._changed:
            first = [pending.first for pending in self._backlog.values()]
            self._queue.discard_below(min([*first, self._queue.last_taken + 1]))
            self._is_done = not self._backlog and self._queue.is_empty
            self._changed.notify_all()
            if self._closing is None or self._abandoned:
                return self._abandoned
            return self._is_done or self._is_hopeless(self._closing, time.monotonic())

    def _is_hopeless(self, since: float, now: float) -> bool:
        is_failing = any(pending.attempts for pending in self._backlog.copy().values())
        return is_failing and now - max(since, self._succeeded) >= self._patience_s

    def _warn_of_unwritten(self) -> None:
        in_memory = self.unwritten()
        num_kept = self.num_left - len(in_memory)
        if self._spool_path is not None and num_kept > 0:
            _logger.warning(
                "%d entries of the sweep have not been written to MLflow%s; they are kept in %s. "
                "Deliver them with:  tune-tf sync %s",
                num_kept,
                f" ({self.last_error})" if self._is_down else "",
                self._spool_path,
                self._spool_path.parent,
            )
        if self.runs is not None:
            self.lost += self.runs.num_refused
        if in_memory and self._thread.is_alive():
            _logger.warning(
                "MLflow did not accept all entries in time; the sweep's runs may be incomplete"
            )
        else:
            self.lost += sum(update.size for update in in_memory)
        if self.lost:
            _logger.warning(
                "%d values could not be written to MLflow; the sweep's own results contain them",
                self.lost,
            )
