"""The processes of one trial that train its subtasks, each at its own pace."""

import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.placement_group import PlacementGroup

from tune_tf.errors import TuneTfError, WorkerError, WorkerLostError
from tune_tf.outcome import Outcome
from tune_tf.trainables.pulses import Pulse, Watch
from tune_tf.trainables.subtask_queue import SubtaskQueue, Unit
from tune_tf.trainables.subtask_results import Metrics, SubtaskResults, has_diverged
from tune_tf.trainables.subtask_worker import Snapshot, SubtaskActor, SubtaskAssignment
from tune_tf.trainables.worker import EpochReport, TrialStart
from tune_tf.trainables.worker_actor import started

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class _Device:
    """A process and what it was given to do.

    Attributes:
        actor: The process.
        pulse: Its signs of life; None while it starts, when it may be silent for long.
        line: Epochs that it was given and has not reported.
        expects: Whether it waits for the state of a subtask that it takes over.
        last: What it reported last.
    """

    actor: Any
    name: str = ""
    pulse: Pulse | None = None
    line: list[Unit] = field(default_factory=list)
    expects: bool = False
    last: EpochReport | None = None


@dataclass(frozen=True)
class _Known:
    """A state to which a subtask can go back.

    Args:
        epoch: Epochs done.
        snapshot: Where Ray has it, a :class:`Snapshot`.
        before: The one before, while it is not sure that this one was made.
    """

    epoch: int
    snapshot: Any
    before: "_Known | None" = None


class SubtaskCrew:
    """Starts a process on each device of a trial and keeps them all busy.

    Everything here happens in one thread, in the order in which it comes: what a process has done,
    and what is asked of the crew. So devices go on while nobody asks.

    Args:
        assignment: What each process does.
        num_devices: Processes, one a bundle, in their order.
        placement_group: Where they live.
        watch: When a process counts as lost.
        actor: The actor class.
        clock: Seconds that only grow.

    Raises:
        TuneTfError: A process cannot be set up, as it says.
    """

    def __init__(
        self,
        assignment: SubtaskAssignment,
        *,
        num_devices: int,
        placement_group: PlacementGroup,
        watch: Watch = Watch(),  # noqa: B008  frozen
        actor: Any = SubtaskActor,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._assignment = assignment
        self._subtasks = assignment.subtasks
        self._placement_group = placement_group
        self._watch = watch
        self._clock = clock
        self._actor = ray.remote(concurrency_groups={"pulse": 1, "aside": 1})(actor)
        self._number = 0  # of the trial, in the life of this crew
        self._trial: TrialStart | None = None
        self._error: BaseException | None = None
        self._waiting: list[tuple[Callable[[], bool], Future[None]]] = []
        self._tries: dict[int, int] = {}
        self._num_replaced = 0
        self._known: dict[int, _Known] = {}
        self._is_training = False
        self._queue = SubtaskQueue(self._subtasks.num_subtasks, num_devices)
        self._results = SubtaskResults(self._subtasks.num_subtasks)
        self._devices = [_Device(self._hire(rank)) for rank in range(num_devices)]
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="subtasks")
        try:
            names = ray.get([each.actor.do.remote("prepare", assignment) for each in self._devices])
        except RayError as error:
            self.end()
            raise _judged(error) from None
        for device, name in zip(self._devices, names, strict=True):
            device.name = name

    @property
    def devices(self) -> str:
        """What the subtasks train on, for reports."""
        return "; ".join(device.name for device in self._devices)

    @property
    def reports(self) -> list[EpochReport]:
        """What each device reported last."""
        return [device.last for device in self._devices if device.last is not None]

    def begin(
        self,
        trial: TrialStart,
        *,
        reported: int = 0,
        results: SubtaskResults | None = None,
        snapshots: Mapping[int, Snapshot] | None = None,
    ) -> None:
        """Begin a trial in place of the one before; nothing trains until a result is asked for.

        Args:
            trial: The trial.
            reported: Iterations that it has reported already.
            results: What its subtasks have done already, up to their snapshots.
            snapshots: States of those that have begun.
        """
        self._do(self._begin, trial, reported, results, dict(snapshots or {}))

    def iteration(self, number: int) -> tuple[list[Metrics], bool]:
        """Return the metrics of an iteration by subtask, and whether no subtask goes on after it.

        Returns as soon as all subtasks have done it; the devices go on meanwhile.

        Raises:
            TuneTfError: A subtask failed too often, with what its process said.
        """
        self._do(self._train_on, number - 1)
        self._wait(lambda: self._results.is_complete(number))
        return self._do(self._told, number)

    def snapshots(self) -> tuple[dict[int, Snapshot], SubtaskResults]:
        """Return the state of each subtask that has begun, and the results up to these states.

        Raises:
            TuneTfError: As for :meth:`iteration`.
        """
        number, states = self._do(self._ask_for_states)
        read = {subtask: self._read(subtask, state) for subtask, state in states.items()}
        snapshots = {subtask: each for subtask, each in read.items() if each is not None}
        epochs = {subtask: snapshot.epoch for subtask, snapshot in snapshots.items()}
        self._wait(lambda: all(self._results.last_epoch(i) >= epochs[i] for i in epochs))
        refs = {subtask: states[subtask] for subtask in snapshots}
        return snapshots, self._do(self._learn, number, epochs, refs)

    def end(self, *, finish: bool = False) -> None:
        """End all processes.

        Args:
            finish: Whether to tell the trial's callbacks first, after the epochs in flight.
        """
        self._thread.shutdown(wait=True, cancel_futures=True)
        actors = [device.actor for device in self._devices]
        if finish:
            for actor in actors:
                actor.do_aside.remote("make_void", self._number)
            answers = [actor.do.remote("finish") for actor in actors]
            ray.wait(answers, num_returns=len(answers), timeout=self._watch.finish_s)
        for actor in actors:
            ray.kill(actor)
        self._devices = []

    # What follows runs in the crew's own thread, but for the next three.

    def _do(self, act: Callable[..., Any], *arguments: Any) -> Any:
        """Do something in the crew's thread; return what it returns."""
        return self._thread.submit(self._and_then_dispatch, act, *arguments).result()

    def _wait(self, is_there: Callable[[], bool]) -> None:
        """Wait until something is the case, and watch the processes meanwhile."""
        waiting: Future[None] = Future()
        self._do(self._waiting.append, (is_there, waiting))
        while not waiting.done():
            with suppress(TimeoutError):
                waiting.exception(timeout=self._watch.pulse_s)
            if not waiting.done():
                self._do(self._feel_pulses)
        waiting.result()

    def _hear(self, act: Callable[..., None], *arguments: Any) -> None:
        """Do something in the crew's thread when it gets round to it; from any thread."""
        with suppress(RuntimeError):  # the crew has ended
            self._thread.submit(self._and_then_dispatch, act, *arguments)

    def _and_then_dispatch(self, act: Callable[..., Any], *arguments: Any) -> Any:
        try:
            done = act(*arguments)
            self._dispatch()
        except Exception as error:  # noqa: BLE001  whoever waits raises it
            done = None
            self._fail(error)
        for is_there, waiting in list(self._waiting):
            if self._error is not None:
                waiting.set_exception(self._error)
            elif is_there():
                waiting.set_result(None)
            else:
                continue
            self._waiting.remove((is_there, waiting))
        return done

    def _begin(
        self,
        trial: TrialStart,
        reported: int,
        results: SubtaskResults | None,
        snapshots: dict[int, Snapshot],
    ) -> None:
        for device in self._devices:
            device.actor.do_aside.remote("make_void", self._number)
        self._number += 1
        self._trial, self._error, self._tries = trial, None, {}
        self._is_training = False
        self._results = results or SubtaskResults(self._subtasks.num_subtasks)
        usual = self._queue.devices
        self._queue = SubtaskQueue(len(usual), len(self._devices), usual, reported)
        self._known = {}
        for subtask, snapshot in snapshots.items():
            self._known[subtask] = _Known(snapshot.epoch, ray.put(snapshot))
            ended = self._results.has_ended(subtask, snapshot.epoch)
            self._queue.begin_at(subtask, snapshot.epoch, ended=ended)
        for device in self._devices:
            self._start(device)

    def _start(self, device: _Device) -> None:
        device.line, device.pulse, device.expects = [], None, False
        answer = device.actor.do.remote("start", self._number, self._trial)
        self._follow(answer, self._has_started, device, self._number)

    def _has_started(self, device: _Device, number: int, answer: "Future[Any]") -> None:
        if number != self._number or device not in self._devices:
            return
        if (error := answer.exception()) is None:
            device.pulse = Pulse(device.actor, self._clock())
            return
        told = _judged(error)
        self._num_replaced += 1
        if self._num_replaced > self._subtasks.task_retries or not _may_be_retried(told):
            self._fail(told)
        else:
            self._replace(device, told)

    def _train_on(self, reported: int) -> None:
        self._is_training = True
        self._queue.reported = reported
        self._results.forget(reported)

    def _told(self, number: int) -> tuple[list[Metrics], bool]:
        ended = (self._results.has_ended(i, number) for i in range(self._subtasks.num_subtasks))
        return self._results.of(number), all(ended)

    def _dispatch(self) -> None:
        """Give work to all who can have some; one with an empty line comes first."""
        given = self._is_training and self._error is None
        while given:
            given = False
            for device in sorted(self._devices, key=lambda each: len(each.line)):
                if device.pulse is None or device.expects:
                    continue
                unit = self._queue.take(self._devices.index(device))
                if unit is not None:
                    self._send(device, unit)
                    given = True

    def _send(self, device: _Device, unit: Unit) -> None:
        device.line.append(unit)
        if unit.source is None:
            self._train(device, unit)
            return
        # Not before the state is there: Ray keeps back all later calls, also those for a pulse.
        device.expects = True
        state = self._hand_over(self._devices[unit.source], unit.subtask, unit.epoch - 1)
        self._follow(state, self._is_handed_over, device, self._number, unit)

    def _is_handed_over(
        self, device: _Device, number: int, unit: Unit, answer: "Future[Snapshot | None]"
    ) -> None:
        if number != self._number or device not in self._devices:
            return
        device.expects = False
        if answer.exception() is None:
            self._train(device, unit)
            return
        device.line.remove(unit)  # the process that had it is to blame, and is found out by itself
        self._forget(unit.subtask)
        self._go_back(unit.subtask)

    def _train(self, device: _Device, unit: Unit) -> None:
        known = self._known.get(unit.subtask) if unit.begins else None
        state = None if known is None else known.snapshot
        report = device.actor.do.remote("epoch", self._number, unit.subtask, unit.begins, state)
        self._follow(report, self._has_trained, device, self._number, unit)

    def _hand_over(self, device: _Device, subtask: int, epoch: int) -> Any:
        """Take a subtask's state from a device that does not train it; return where it will be."""
        state = device.actor.do_aside.remote("hand_over", subtask)
        self._known[subtask] = _Known(epoch, state, before=self._known.get(subtask))
        return state

    def _has_trained(
        self, device: _Device, number: int, unit: Unit, answer: "Future[EpochReport | None]"
    ) -> None:
        if number != self._number or device not in self._devices or unit not in device.line:
            return  # of an earlier trial, or an earlier process of this device
        if (error := answer.exception()) is not None:
            told = _judged(error)
            # A process that dies takes all that waits in its line along: it trained the first.
            self._failed(device, device.line[0] if _is_death(told) else unit, told)
            return
        device.line.remove(unit)
        report = answer.result()
        if report is None:
            return  # it had ended before
        device.last = report
        ended = report.stop_training or has_diverged(report.metrics)
        self._results.add(unit.subtask, unit.epoch, report.metrics, ended=ended)
        self._queue.done(unit.subtask, ended=ended)
        if unit.begins and unit.subtask in self._known:
            known = self._known[unit.subtask]
            self._known[unit.subtask] = _Known(known.epoch, known.snapshot)
        if ended:
            self._hand_over(device, unit.subtask, unit.epoch)

    def _failed(self, device: _Device, unit: Unit, error: BaseException) -> None:
        subtask = unit.subtask
        if unit.begins and self._is_lost(subtask):
            device.line.remove(unit)  # the process that had it is to blame, not this one
            self._go_back(subtask)
            return
        self._tries[subtask] = tries = self._tries.get(subtask, 0) + 1
        label = f"{self._subtasks.subtask} {subtask}"
        hopeless = not _may_be_retried(error) or (not _is_death(error) and self._is_untrained())
        if hopeless or tries > self._subtasks.task_retries:
            kind = type(error) if isinstance(error, WorkerError) else WorkerError
            if isinstance(error, TuneTfError) and not isinstance(error, WorkerError):
                self._fail(error)
            else:
                self._fail(kind(f"{label} failed {tries} time(s): {error}"))
            return
        _log.warning("%s failed and is tried again in a fresh process: %s", label, error)
        self._replace(device, error)

    def _is_untrained(self) -> bool:
        """Return whether no subtask has done an epoch yet: an error then lies in the workload."""
        return not any(map(self._results.last_epoch, range(self._subtasks.num_subtasks)))

    def _is_lost(self, subtask: int) -> bool:
        """Return whether the state that a subtask was to begin from was never made."""
        known = self._known.get(subtask)
        if known is None or not ray.wait([known.snapshot], timeout=0)[0]:
            return False
        try:
            ray.get(known.snapshot)
        except RayError:
            self._forget(subtask)
            return True
        return False

    def _forget(self, subtask: int) -> None:
        """Go back to the state before the one that is known."""
        before = self._known.pop(subtask).before
        if before is not None:
            self._known[subtask] = before

    def _go_back(self, subtask: int) -> None:
        """Let a subtask begin again, on any device, from the last state that is known."""
        known = self._known.get(subtask)
        self._queue.begin_at(subtask, 0 if known is None else known.epoch)

    def _replace(self, device: _Device, error: BaseException) -> None:
        """Start a fresh process in a device's place; what it had goes on elsewhere meanwhile."""
        rank = self._devices.index(device)
        lost = self._queue.lost(rank)
        if not _is_death(error):
            trained = {unit.subtask for unit in device.line}
            self._rescue(device, {i: lost[i] for i in lost if i not in trained})
        for subtask in lost:
            self._go_back(subtask)
        ray.kill(device.actor)
        fresh = self._devices[rank] = _Device(self._hire(rank))
        self._follow(fresh.actor.do.remote("prepare", self._assignment), self._is_prepared, fresh)

    def _is_prepared(self, device: _Device, answer: "Future[str]") -> None:
        if device not in self._devices:
            return
        if (error := answer.exception()) is not None:
            self._fail(_judged(error))
            return
        device.name = answer.result()
        self._start(device)

    def _rescue(self, device: _Device, epochs: Mapping[int, int]) -> None:
        """Take over what a process has that raised, apart from what it was training."""
        for subtask, epoch in epochs.items():
            self._hand_over(device, subtask, epoch)
        states = {subtask: self._known[subtask].snapshot for subtask in epochs}
        if states:
            ray.wait(list(states.values()), num_returns=len(states), timeout=self._watch.finish_s)
        for subtask, state in states.items():
            if not ray.wait([state], timeout=0)[0] or _told_by(state) is None:
                self._forget(subtask)

    def _feel_pulses(self) -> None:
        """Give up devices that are dead, or silent for too long."""
        for device in tuple(self._devices):
            if device.pulse is None:
                continue
            try:
                silence_s = device.pulse.silence_s(self._clock())
            except RayError as error:
                lost = _judged(error)
            else:
                if silence_s <= self._watch.silent_s:
                    continue
                lost = WorkerLostError(
                    f"{device.name} has given no sign of life for {self._watch.silent_s:g} s: its "
                    "node is down, cut off or frozen"
                )
            if device.line:
                self._failed(device, device.line[0], lost)
            else:
                self._replace(device, lost)

    def _ask_for_states(self) -> tuple[int, dict[int, Any]]:
        """Return the trial's number and, by subtask, where Ray will have its state."""
        states = {subtask: known.snapshot for subtask, known in self._known.items()}
        for subtask, rank in enumerate(self._queue.devices):
            if rank is not None and self._devices[rank].pulse is not None:
                # In line with the epochs that it was given, so that it tells what comes of them.
                states[subtask] = self._devices[rank].actor.do.remote("state", subtask)
        return self._number, states

    def _read(self, subtask: int, state: Any) -> Snapshot | None:
        """Return a subtask's state from where it is, or the last one known; None for none."""
        snapshot = _told_by(state)
        known = None if snapshot else self._do(self._known.get, subtask)
        while snapshot is None and known is not None:
            snapshot, known = _told_by(known.snapshot), known.before
        return snapshot

    def _learn(
        self, number: int, epochs: Mapping[int, int], states: Mapping[int, Any]
    ) -> SubtaskResults:
        """Keep states to go back to; return the results up to them."""
        for subtask, epoch in epochs.items():
            known = self._known.get(subtask)
            if number == self._number and (known is None or known.epoch < epoch):
                self._known[subtask] = _Known(epoch, states[subtask])
        return self._results.up_to(epochs)

    def _follow(self, answer: Any, then: Callable[..., None], *arguments: Any) -> None:
        """Do something with what a process answers, once it has."""
        answer.future().add_done_callback(lambda told: self._hear(then, *arguments, told))

    def _hire(self, rank: int) -> Any:
        return started(self._actor, rank, self._assignment.resources, self._placement_group)

    def _fail(self, error: BaseException) -> None:
        if self._error is None:
            self._error = error


def _told_by(state: Any) -> Snapshot | None:
    """Return the state that Ray has somewhere; None if it was lost."""
    try:
        return ray.get(state)
    except RayError:
        return None


def _judged(error: BaseException) -> BaseException:
    """Return an error of Ray's as the trial should raise it."""
    if isinstance(error, RayTaskError):
        return error.cause if isinstance(error.cause, TuneTfError) else error
    return WorkerLostError(str(error)) if isinstance(error, RayError) else error


def _is_death(error: BaseException) -> bool:
    return isinstance(error, WorkerLostError)


def _may_be_retried(error: BaseException) -> bool:
    """Return whether a fresh process may do better: not if memory is short, or a setting wrong."""
    return isinstance(error, WorkerError) and Outcome.of_error(str(error)) is not Outcome.OOM
