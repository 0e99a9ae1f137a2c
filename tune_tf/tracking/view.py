"""MLflow as a view of a sweep's record: a thread sends what the runs lack."""

import logging
import threading
import time
from collections.abc import Collection
from pathlib import Path
from typing import Final

from tune_tf.atomic_files import write_atomically
from tune_tf.outcome import Outcome
from tune_tf.record import RecordedTrial, Session, SweepHistory, trial_results
from tune_tf.secrets import mask_secrets
from tune_tf.space import flatten
from tune_tf.tracking import environment
from tune_tf.tracking.names import MAX_TAG_LENGTH, one_line, truncate
from tune_tf.tracking.run_content import (
    Curve,
    Point,
    RunContent,
    milliseconds,
    test_points,
    trial_content,
)
from tune_tf.tracking.runs import OpenRun, RunGoneError, SweepRuns
from tune_tf.tracking.sweep_progress import SweepProgress, sweep_status
from tune_tf.tracking.tags import (
    BEST_CHECKPOINT_TAG,
    FINGERPRINT_TAG,
    PARENT,
    PARENT_RUN_TAG,
)
from tune_tf.tracking.tracked_sweep import TrackedSweep

_logger = logging.getLogger(__name__)

ENVIRONMENT: Final = "environment"
"""Folder, in that of the sweep and in MLflow, of what is known of packages and code."""

_SHARE = 0.02  # of a core, at most, for the thread
_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 2.0
_PAUSES_AFTER_FAILURES_S = (0.5, 2.0, 5.0, 15.0, 30.0)
_FAILURES_OF_A_STORE_DOWN = 3  # of different trials
_FAILURES_OF_AN_OUTAGE = 2  # in a row; a single one is not told
_LONGEST_S = 300.0
_PATIENCE_S = 5.0
_ERROR_LENGTH = 200


class MLflowView:
    """MLflow's runs of a sweep, as the record has it: a parent run, and a child run for each trial.

    A thread reads the record and sends what the runs lack. What MLflow has is asked from it at the
    beginning, and nothing else is kept: runs that were deleted, or that another store lacks, are
    made anew. The driver waits for it at the end alone.

    Args:
        folder: Folder of the record.
        sweep: What the runs follow from besides the record.
        is_over: Whether no process drives the sweep: what has not ended was interrupted.
    """

    def __init__(self, folder: Path, sweep: TrackedSweep, *, is_over: bool = False) -> None:
        self.sweep = sweep
        self.last_error = ""
        """Text of the error by which the store is not available; empty if it is."""
        self._folder = folder
        self._is_over = is_over
        self._known: frozenset[str] | None = None
        self._run_ids: dict[str, str] = {}
        self._runs = SweepRuns(sweep)
        self._forget()
        self._changed = threading.Condition()
        self._asked = self._answered = self._num_failures = 0
        self._is_closed = False
        self._thread: threading.Thread | None = None

    @property
    def run_ids(self) -> dict[str, str]:
        """MLflow's run ids by trial id or :data:`PARENT`, for the runs made so far."""
        return self._run_ids.copy()

    @property
    def trial_run_ids(self) -> dict[str, str]:
        """MLflow's run ids by trial id, for the runs made so far."""
        return {key: run_id for key, run_id in self.run_ids.items() if key != PARENT}

    def run_id_of(self, key: str) -> str | None:
        """Return MLflow's id of a trial's run, or of :data:`PARENT`; None before it is made."""
        return self._run_ids.get(key)

    @property
    def num_refused(self) -> int:
        """Number of values that MLflow rejected for good."""
        return self._runs.num_refused

    @property
    def num_waiting(self) -> int:
        """Number of trials whose runs lack something, or that go on."""
        return len(self._waiting)

    def start(self, trial_ids: Collection[str]) -> None:
        """Begin to send, in a thread.

        ``trial_ids`` are those of all trials until now: runs that a killed driver has left of
        others are deleted.
        """
        self._known = frozenset(trial_ids)
        self._thread = threading.Thread(target=self._run, name="tune_tf-mlflow", daemon=True)
        self._thread.start()

    def flush(self, patience_s: float | None = None) -> bool:
        """Wait until MLflow has all that is recorded by now; return whether it has.

        If the store fails, that is for ``patience_s`` seconds without any success, 5 by default.
        """
        patience_s = _PATIENCE_S if patience_s is None else patience_s
        thread, num_calls = self._thread, self._runs.num_calls
        begun = progress = time.monotonic()
        with self._changed:
            self._asked += 1
            asked = self._asked
            self._changed.notify_all()
            while self._answered < asked and thread is not None and thread.is_alive():
                now = time.monotonic()
                if self._runs.num_calls != num_calls:
                    num_calls, progress = self._runs.num_calls, now
                if (self.last_error and now - progress >= patience_s) or now - begun >= _LONGEST_S:
                    break
                self._changed.wait(_PAUSE_S)
            return self._answered >= asked

    def close(self, patience_s: float | None = None) -> bool:
        """Send what is left, as :meth:`flush` does, and end the thread."""
        has_all = self.flush(patience_s)
        self.stop()
        return has_all

    def stop(self) -> None:
        """End the thread, without waiting."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def update(self) -> None:
        """Send what MLflow lacks.

        Raises:
            Exception: Any of the record or of MLflow; what could be sent was.
        """
        try:
            self._update()
        except RunGoneError:
            self._forget()
            self._update()

    def _run(self) -> None:
        """Send what is new again and again, until the view is closed."""
        is_begun = self._is_over
        while not self._is_closed:
            asked, begun_s = self._asked, time.thread_time()
            try:
                self.update()
            except Exception as error:  # noqa: BLE001  training goes on after any error
                self._note_failure(error)
            else:
                self._note_success(asked)
            if not is_begun:
                self._write_environment()  # it takes seconds
                is_begun = True
                continue
            pause_s = min(max((time.thread_time() - begun_s) / _SHARE, _PAUSE_S), _LONGEST_PAUSE_S)
            with self._changed:
                if self._num_failures:
                    delays_s = _PAUSES_AFTER_FAILURES_S
                    pause_s = delays_s[min(self._num_failures, len(delays_s)) - 1]
                    if self._answered < self._asked:  # somebody waits
                        pause_s = min(pause_s, _LONGEST_PAUSE_S)
                if not self._is_closed and asked == self._asked:
                    self._changed.wait(pause_s)

    def _note_failure(self, error: Exception) -> None:
        self._num_failures += 1
        self.last_error = one_line(mask_secrets(str(error)), _ERROR_LENGTH) or repr(error)
        _logger.debug("Writing to MLflow failed: %s", self.last_error)
        if self._num_failures == _FAILURES_OF_AN_OUTAGE:
            _logger.warning("MLflow is not available; training continues: %s", self.last_error)

    def _note_success(self, asked: int) -> None:
        if self._num_failures >= _FAILURES_OF_AN_OUTAGE:
            _logger.info("MLflow is available again; it has all results by now")
        with self._changed:
            self._num_failures, self.last_error = 0, ""
            self._answered = asked
            self._changed.notify_all()

    def _write_environment(self) -> None:
        """Write what is known of packages and code to the folder, for this session."""
        folder = self._folder / ENVIRONMENT
        if folder.exists():
            folder /= time.strftime("resumed-%Y%m%d-%H%M%S", time.gmtime(time.time()))
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name, text in environment.environment_texts().items():
                write_atomically(folder / name, text)
        except OSError as error:
            _logger.warning("the environment of the sweep could not be written: %s", error)

    def _forget(self) -> None:
        """Forget what MLflow has, which is asked again."""
        self._is_begun = False
        self._open: dict[str, OpenRun] = {}
        self._curves: dict[str, Curve] = {}
        self._waiting: dict[str, RecordedTrial] = {}
        self._since_s = 0.0
        self._progress = SweepProgress(self.sweep)
        self._num_points = 0  # of the sweep's own run that were sent
        self._tests: dict[str, list[Point]] = {}

    def _update(self) -> None:
        if not self._is_begun:
            self._begin()
        history = SweepHistory.changes(self._folder, self._since_s)
        if not history.sessions:
            return
        self._waiting |= history.trials
        for key, trial in history.trials.items():
            if trial.outcome is not None:
                self._since_s = max(self._since_s, trial.ended_s or 0.0, trial.tested_s)
            if trial.test_metrics:
                self._tests[key] = test_points(trial)
        self._progress.add(history.trials.values())
        if PARENT not in self._open:
            begun_ms = milliseconds(history.sessions[0].begun_s)
            self._create(PARENT, RunContent(self.sweep.name, begun_ms))
        session = history.sessions[-1]
        is_over = self._is_over or session.ended_cleanly
        error = self._send_trials(is_over=is_over)
        self._send_parent(session, is_over=is_over)
        if error is not None:
            raise error

    def _begin(self) -> None:
        """Ask MLflow which runs there are."""
        history = SweepHistory.read(self._folder)
        noted = {key: trial.run_id for key, trial in history.trials.items()}
        noted |= {PARENT: history.run_id, **self._run_ids}
        found = self._runs.find(history.dataset, {*noted.values()})
        known = history.trials.keys() if self._known is None else self._known
        for key in found.keys() - known - {PARENT}:
            self._runs.delete(found.pop(key))
        self._known = None
        num_lost = sum(run_id is not None and key not in found for key, run_id in noted.items())
        if num_lost:
            _logger.warning(
                "%d runs of %s are not in MLflow any more: they are made anew from its record",
                *(num_lost, self.sweep.sweep_id),
            )
        self._open = found
        self._run_ids = {key: run.run_id for key, run in found.items()}
        self._is_begun = True

    def _create(self, key: str, content: RunContent) -> OpenRun:
        parent = None if key == PARENT else self._open[PARENT].run_id
        run = self._open[key] = self._runs.create(key, content, parent)
        self._run_ids[key] = run.run_id
        return run

    def _send_trials(self, *, is_over: bool) -> Exception | None:
        """Send what trials lack; return an error of one of them, and raise that of a store down."""
        last_error, num_failures = None, 0
        for trial in list(self._waiting.values()):
            try:
                self._send_trial(trial, is_over=is_over)
            except RunGoneError:
                raise
            except Exception as error:
                last_error, num_failures = error, num_failures + 1
                if num_failures == _FAILURES_OF_A_STORE_DOWN:
                    raise
                continue
            num_failures = 0
            if trial.outcome is not None:
                del self._waiting[trial.trial_id]
        return last_error

    def _send_trial(self, trial: RecordedTrial, *, is_over: bool) -> None:
        key = trial.trial_id
        outcome = Outcome.INTERRUPTED if trial.outcome is None and is_over else trial.outcome
        curve = self._curves.get(key) or Curve(flatten(trial.suggested))
        content = trial_content(trial, self.sweep, outcome)
        run = self._open.get(key) or self._create(key, content)
        points: list[Point] = []
        is_complete = content.end_ms is not None and run.has_ended_as(content)
        if trial.last != curve.last and not is_complete:
            results = trial_results(self._folder, trial.number, curve.num_results)
            curve, points = curve.extended(results, trial.last)
        content.points, content.tests = points, self._tests.get(key, [])
        parent = {PARENT_RUN_TAG: self._open[PARENT].run_id}  # which may have been made anew
        content.tags = {**content.tags, **curve.tags, **parent}
        self._runs.send(run, content)
        self._curves[key] = curve
        if trial.outcome is not None:
            del self._curves[key]

    def _send_parent(self, session: Session, *, is_over: bool) -> None:
        run, progress = self._open[PARENT], self._progress
        content = RunContent(
            self.sweep.name,
            tags=progress.best_tags(),
            points=progress.points[self._num_points :],
            texts=self.sweep.details.artifacts(),
            files=self._files(is_over=is_over),
        )
        if is_over:
            self._add_end(content, run, session)
        self._runs.send(run, content)
        self._num_points = len(progress.points)

    def _add_end(self, content: RunContent, run: OpenRun, session: Session) -> None:
        """Add what the sweep's own run has at the end."""
        progress = self._progress
        interrupted = session.interrupted or not session.ended_cleanly
        end_ms = milliseconds(session.last_s)
        content.status = sweep_status(progress.outcomes, interrupted=interrupted)
        content.end_ms = None if content.status == run.status else end_ms
        if not interrupted:  # a resumed sweep may find a better one
            content.params = progress.best_params()
        changed = {k: v for k, v in content.params.items() if run.params.get(k, v) != v}
        content.tags = {**content.tags, **changed}  # a parameter cannot change
        if session.fingerprint is not None:
            text = truncate(str(session.fingerprint), MAX_TAG_LENGTH)
            content.tags[FINGERPRINT_TAG] = text
        if progress.best is not None:
            best = SweepHistory.read(self._folder).trials[progress.best.trial_id]
            if best.checkpoints:
                path = f"{self.sweep.storage}/{best.checkpoints[-1]}"
                content.tags[BEST_CHECKPOINT_TAG] = truncate(path, MAX_TAG_LENGTH)
            content.tests = self._tests.get(best.trial_id, [])

    def _files(self, *, is_over: bool) -> dict[str, Path]:
        """Return the files that the sweep's own run is to have, by their paths there."""
        folder = self._folder / ENVIRONMENT
        found = (path for path in folder.rglob("*") if path.is_file() and path.name[0] != ".")
        files = {path.relative_to(self._folder).as_posix(): path for path in sorted(found)}
        if is_over:
            files |= {path: file for path, file in self.sweep.files.items() if file.is_file()}
        return files
