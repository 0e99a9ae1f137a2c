"""Pool of a trial's processes that train its subtasks independently."""

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import ray
from ray.exceptions import RayError

from tune_tf.errors import TuneTfError, WorkerError, WorkerLostError
from tune_tf.trainables.multi_process.processes import Bundles, cause_of, may_be_retried
from tune_tf.trainables.multi_process.worker import WorkerProcess, WorkerSetup
from tune_tf.trainables.subtasks.progress import (
    SubtaskDevice,
    SubtaskMetrics,
    SubtaskResults,
    SubtaskStates,
    fetch_snapshot,
    has_diverged,
)
from tune_tf.trainables.subtasks.queue import SubtaskEpoch, SubtaskQueue
from tune_tf.trainables.subtasks.worker import SubtaskSnapshot, SubtaskWorker
from tune_tf.trainables.trial_process import EpochReport, TrialStart

_log = logging.getLogger(__name__)


class SubtaskPool:
    """Pool of processes, one per bundle, that train the subtasks of a trial.

    A thread handles the replies of processes in order of arrival, so that the devices keep busy
    between two calls of the trial.
    """

    def __init__(
        self,
        setup: WorkerSetup,
        bundles: Bundles,
        worker_class: type[WorkerProcess] = SubtaskWorker,
    ) -> None:
        self._setup = setup
        self._subtasks = setup.settings.parallelism
        self._bundles = bundles
        self._worker_class = worker_class
        self._trial_number = 0  # counted in this pool
        self._trial: TrialStart
        self._num_failures: dict[int, int] = {}
        self._num_replaced = 0
        self._states = SubtaskStates()
        self._is_training = False
        num_devices = len(bundles.shares)
        self._queue = SubtaskQueue(self._subtasks.num_subtasks, num_devices)
        self._results = SubtaskResults(self._subtasks.num_subtasks)
        self._devices = [self._start_process(rank) for rank in range(num_devices)]
        self._error: BaseException | None = None
        self._changed = threading.Condition()  # guards all of the above
        self._replies = ThreadPoolExecutor(1, thread_name_prefix="subtasks")
        try:
            names = ray.get([device.process.call("prepare", setup) for device in self._devices])
        except RayError as error:
            self.end()
            raise cause_of(error) from None
        for device, name in zip(self._devices, names, strict=True):
            device.process.name = name

    @property
    def devices(self) -> str:
        """Description of the devices, for reports."""
        return "; ".join(device.process.name for device in self._devices)

    def begin(
        self,
        trial: TrialStart,
        *,
        reported: int = 0,
        results: SubtaskResults | None = None,
        snapshots: Mapping[int, SubtaskSnapshot] | None = None,
    ) -> None:
        """Begin a trial instead of the previous one; training starts with :meth:`iteration`.

        A restored trial has ``reported`` iterations, and results of its subtasks up to snapshots.
        """
        with self._changed:
            for device in self._devices:
                device.process.call_concurrently("make_void", self._trial_number)
            self._trial_number += 1
            self._trial, self._error, self._num_failures = trial, None, {}
            self._is_training = False
            self._results = results or SubtaskResults(self._subtasks.num_subtasks)
            devices = self._queue.devices
            self._queue = SubtaskQueue(len(devices), len(self._devices), devices, reported)
            self._states = SubtaskStates()
            for subtask, snapshot in (snapshots or {}).items():
                self._states.keep(subtask, snapshot.epoch, ray.put(snapshot))
                self._rewind(subtask)
            for device in self._devices:
                self._start(device)

    def iteration(self, number: int) -> tuple[list[SubtaskMetrics], bool]:
        """Return the metrics of an iteration by subtask, and whether all subtasks have ended.

        Returns once all subtasks have completed the iteration; the devices keep training. If a
        subtask has failed too often, its error is raised.
        """
        with self._changed:
            self._is_training = True
            self._queue.reported = number - 1
            self._results.forget(number - 1)
            self._dispatch()
            self._wait(lambda: self._results.is_complete(number))
            ended = (self._results.has_ended(i, number) for i in range(self._subtasks.num_subtasks))
            return self._results.of(number), all(ended)

    def snapshots(self) -> tuple[dict[int, SubtaskSnapshot], SubtaskResults]:
        """Return the state of each subtask that has begun, and the results up to these states."""
        with self._changed:
            number, states = self._trial_number, self._states.lasts()
            for subtask, rank in enumerate(self._queue.devices):
                if rank is not None and self._devices[rank].process.is_watched:
                    # Queued behind the epochs already sent, so that it includes them.
                    states[subtask] = self._devices[rank].process.call("state", subtask)
        snapshots = {
            subtask: snapshot
            for subtask, state in states.items()
            if (snapshot := self._read(subtask, state)) is not None
        }
        epochs = {subtask: snapshot.epoch for subtask, snapshot in snapshots.items()}
        with self._changed:
            self._wait(lambda: all(self._results.last_epoch(i) >= epochs[i] for i in epochs))
            for subtask, epoch in epochs.items():
                if number == self._trial_number and self._states.epoch(subtask) < epoch:
                    self._states.keep(subtask, epoch, states[subtask])
            return snapshots, self._results.up_to(epochs)

    def _read(self, subtask: int, state: Any) -> SubtaskSnapshot | None:
        """Return a subtask's state, or the latest available one before; None if there is none."""
        with self._changed:
            states = [state, *self._states.all_of(subtask)]
        return next(filter(None, map(fetch_snapshot, states)), None)

    def end(self, *, finish: bool = False) -> None:
        """End all processes; with ``finish``, call the trial's callbacks first."""
        self._replies.shutdown(wait=True, cancel_futures=True)
        processes = [device.process for device in self._devices]
        self._devices = []
        if finish:
            for process in processes:
                process.call_concurrently("make_void", self._trial_number)
        self._bundles.end(processes, processes if finish else [])

    def _wait(self, is_met: Callable[[], bool]) -> None:
        """Wait for a condition, and check the heartbeats meanwhile; raise the trial's error."""
        while self._error is None and not is_met():
            self._changed.wait(self._bundles.timeouts.ping_interval_s)
            self._check_heartbeats()
            self._dispatch()
        if self._error is not None:
            raise self._error

    def _fail(self, error: BaseException) -> None:
        """Let all waits raise an error; only the first error counts."""
        self._error = self._error or error

    def _follow(
        self,
        device: SubtaskDevice,
        call: Any,
        handler: Callable[..., None],
        *arguments: Any,
        of_trial: bool = True,
    ) -> None:
        """Handle the reply to a call; if ``of_trial``, unless the trial has ended or failed."""
        number = self._trial_number

        def handle(reply: "Future[Any]") -> None:
            with self._changed:
                is_current = not of_trial or (number == self._trial_number and self._error is None)
                if is_current and device in self._devices:
                    try:
                        handler(device, *arguments, reply)
                        self._dispatch()
                    except Exception as error:  # noqa: BLE001  raised by waiting callers
                        self._fail(error)
                self._changed.notify_all()

        def submit(reply: "Future[Any]") -> None:
            with suppress(RuntimeError):  # the pool has ended
                self._replies.submit(handle, reply)

        call.future().add_done_callback(submit)

    # The methods below are called with the lock held.

    def _start(self, device: SubtaskDevice) -> None:
        device.sent, device.is_receiving = [], False
        device.process.watch(False)
        call = device.process.call("begin_trial", self._trial_number, self._trial)
        self._follow(device, call, self._on_started)

    def _on_started(self, device: SubtaskDevice, reply: "Future[Any]") -> None:
        if (error := reply.exception()) is None:
            device.process.watch()
            return
        cause = cause_of(error)
        self._num_replaced += 1
        if self._num_replaced > self._subtasks.task_retries or not may_be_retried(cause):
            self._fail(cause)
        else:
            self._replace(device, cause)

    def _dispatch(self) -> None:
        """Give work to all ready devices, those without any first."""
        has_work = self._is_training and self._error is None
        while has_work:
            has_work = False
            for device in sorted(self._devices, key=lambda each: len(each.sent)):
                if device.is_receiving or not device.process.is_watched:
                    continue
                unit = self._queue.assign(self._devices.index(device))
                if unit is not None:
                    self._send(device, unit)
                    has_work = True

    def _send(self, device: SubtaskDevice, unit: SubtaskEpoch) -> None:
        device.sent.append(unit)
        if unit.source is None:
            self._train(device, unit)
            return
        # Wait for the state first: until it exists, Ray delays all later calls, pings included.
        device.is_receiving = True
        state = self._hand_over(self._devices[unit.source], unit.subtask, unit.epoch - 1)
        self._follow(device, state, self._take_over, unit)

    def _take_over(
        self, device: SubtaskDevice, unit: SubtaskEpoch, reply: "Future[SubtaskSnapshot | None]"
    ) -> None:
        device.is_receiving = False
        if reply.exception() is None:
            self._train(device, unit)
            return
        device.sent.remove(unit)  # the source failed, which is detected separately
        self._rewind(unit.subtask)

    def _train(self, device: SubtaskDevice, unit: SubtaskEpoch) -> None:
        state = self._states.last(unit.subtask) if unit.begins else None
        call = device.process.call(
            "train_epoch", self._trial_number, unit.subtask, unit.begins, state
        )
        self._follow(device, call, self._on_trained, unit)

    def _hand_over(self, device: SubtaskDevice, subtask: int, epoch: int) -> Any:
        """Request a subtask's state from a device that is not training it; return the reference."""
        state = device.process.call_concurrently("hand_over", subtask)
        self._states.expect(subtask, epoch, state)
        return state

    def _on_trained(
        self, device: SubtaskDevice, unit: SubtaskEpoch, reply: "Future[EpochReport | None]"
    ) -> None:
        if unit not in device.sent:
            return
        if (error := reply.exception()) is not None:
            cause = cause_of(error)
            # A dying process fails all epochs sent to it; it was training the first.
            is_death = isinstance(cause, WorkerLostError)
            self._retry(device, device.sent[0] if is_death else unit, cause)
            return
        device.sent.remove(unit)
        report = reply.result()
        if report is None:
            return  # the subtask had already ended
        device.report = report
        ended = report.stop_training or has_diverged(report.metrics)
        self._results.add(unit.subtask, unit.epoch, report.metrics, ended=ended)
        self._queue.complete(unit.subtask, ended=ended)
        if unit.begins:
            self._states.confirm(unit.subtask)
        if ended:
            self._hand_over(device, unit.subtask, unit.epoch)

    def _retry(self, device: SubtaskDevice, unit: SubtaskEpoch, error: BaseException) -> None:
        """Retry a failed epoch in a fresh process, or fail the trial."""
        subtask = unit.subtask
        if unit.begins and self._states.discard_lost(subtask):
            device.sent.remove(unit)  # the source failed, not this device
            self._rewind(subtask)
            return
        self._num_failures[subtask] = num = self._num_failures.get(subtask, 0) + 1
        label = f"{self._subtasks.subtask} {subtask}"
        # An error before any epoch was completed is the workload's.
        is_death = isinstance(error, WorkerLostError)
        may_succeed = may_be_retried(error) and (is_death or self._results.has_any)
        if may_succeed and num <= self._subtasks.task_retries:
            _log.warning("%s failed and is retried in a fresh process: %s", label, error)
            self._replace(device, error)
        elif isinstance(error, TuneTfError) and not isinstance(error, WorkerError):
            self._fail(error)
        else:
            kind = WorkerLostError if is_death else WorkerError
            self._fail(kind(f"{label} failed {num} time(s): {error}"))

    def _rewind(self, subtask: int) -> None:
        """Let a subtask resume from its latest state on any device."""
        self._states.discard_lost(subtask, self._bundles.timeouts.finish_s)
        epoch = self._states.epoch(subtask)
        ended = self._results.has_ended(subtask, epoch)
        self._queue.begin_at(subtask, epoch, ended=ended)

    def _replace(self, device: SubtaskDevice, error: BaseException) -> None:
        """Replace a device's process; its subtasks continue on other devices meanwhile."""
        rank = self._devices.index(device)
        subtasks = [i for i, owner in enumerate(self._queue.devices) if owner == rank]
        if not isinstance(error, WorkerLostError):
            trained = {unit.subtask for unit in device.sent}
            states = [
                self._hand_over(device, subtask, self._queue.num_completed(subtask))
                for subtask in subtasks
                if subtask not in trained
            ]
            if states:
                finish_s = self._bundles.timeouts.finish_s
                ray.wait(states, num_returns=len(states), timeout=finish_s)
        device.process.kill()
        for subtask in subtasks:
            self._rewind(subtask)
        fresh = self._devices[rank] = self._start_process(rank)
        call = fresh.process.call("prepare", self._setup)
        self._follow(fresh, call, self._on_prepared, of_trial=False)
        self._start(fresh)

    def _on_prepared(self, device: SubtaskDevice, reply: "Future[str]") -> None:
        if (error := reply.exception()) is None:
            device.process.name = reply.result()
        else:
            self._fail(cause_of(error))

    def _check_heartbeats(self) -> None:
        """Replace the processes of devices that are dead or silent for too long."""
        for device in tuple(self._devices):
            if (error := device.process.heartbeat_error()) is None:
                continue
            if device.sent:
                self._retry(device, device.sent[0], error)
            else:
                self._replace(device, error)

    def _start_process(self, rank: int) -> SubtaskDevice:
        return SubtaskDevice(self._bundles.start(self._worker_class, rank))
