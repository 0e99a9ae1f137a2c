"""Worker process that trains some of a trial's subtasks in turn.

TensorFlow is imported in methods only, so that the trial's actor does not load it.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tune_tf.tracking.trial_run import leave_trial
from tune_tf.trainables.multi_process.worker import (
    Files,
    WorkerProcess,
    WorkerSetup,
    checkpoint_of,
    files_of,
)
from tune_tf.trainables.trial_process import EpochReport, TrialStart
from tune_tf.training.core.seeds import derive_seed
from tune_tf.workload import Config

if TYPE_CHECKING:
    from tune_tf.training.core.loop import GraphLoop
    from tune_tf.training.core.replicas import Replicas
    from tune_tf.training.input.device_rows import DeviceRows


@dataclass(frozen=True)
class SubtaskSnapshot:
    """State of a subtask after a number of completed epochs."""

    epoch: int
    files: Files


@dataclass
class _Running:
    loop: "GraphLoop"
    specs: set[Any] = field(default_factory=set)  # of the rows it has been trained on
    has_ended: bool = False


class SubtaskWorker(WorkerProcess):
    """Worker that trains subtasks, one epoch of one subtask per call.

    A loop keeps its traced programs. Idle loops are reused, first those that have seen rows of the
    same shapes.
    """

    def __init__(self, rank: int, host: str, name: str) -> None:
        super().__init__(rank, host, name)
        self._replicas: Replicas
        self._rows: Callable[[int], DeviceRows]
        self._trial_number = 0
        self._void_number = 0
        self._running: dict[int, _Running] = {}
        self._idle: list[_Running] = []

    def prepare(self, setup: WorkerSetup) -> str:
        """Load the workload, claim the device, and return the device's name."""
        self.set_up(setup)
        from tune_tf.training.core.replicas import Replicas

        self._replicas = Replicas(self.devices)
        self._place_data = self._rows_by_subtask
        return f"{self.devices} on {self._host}"

    def begin_trial(self, number: int, trial: TrialStart) -> None:
        """Begin a trial, after ending the previous one; ``number`` is the trial's in the pool."""
        self._end_all()
        self._trial_number = number
        with self._beginning(trial):
            self._rows = self._data_of(trial)

    def train_epoch(
        self, number: int, subtask: int, begins: bool = False, state: SubtaskSnapshot | None = None
    ) -> EpochReport | None:
        """Train and validate a subtask for one epoch of the trial with a number.

        A subtask that ``begins`` on this device begins from a state; None is its beginning.

        Returns:
            None if nothing was trained because the subtask or the trial has ended meanwhile.
        """
        if number <= self._void_number or number != self._trial_number:
            return None
        self._enter()
        if begins:
            self._begin(subtask, state)
        running = self._running.get(subtask)
        if running is None or running.has_ended:
            return None
        try:
            metrics = running.loop.epoch()
        except BaseException:
            del self._running[subtask]  # a queued next epoch would start from a wrong state
            raise
        running.has_ended = running.loop.stop_training
        loops = [each.loop for each in (*self._running.values(), *self._idle)]
        report = self._report(metrics, sum(loop.num_programs for loop in loops), running.loop)
        return replace(report, metrics=report.numbers)

    def state(self, subtask: int) -> SubtaskSnapshot | None:
        """Return the state of a subtask; None if it is not on this device."""
        running = self._running.get(subtask)
        if running is None:
            return None
        checkpoint = running.loop.state()
        return SubtaskSnapshot(checkpoint.epoch, files_of(checkpoint))

    def hand_over(self, subtask: int) -> SubtaskSnapshot | None:
        """Remove a subtask from this device, and return its state."""
        state = self.state(subtask)
        self._end(subtask)
        return state

    def make_void(self, number: int) -> None:
        """Skip all epochs of a trial that have not begun."""
        self._void_number = number

    def finish(self) -> None:
        """End the trial."""
        self._end_all()
        leave_trial()

    def _begin(self, subtask: int, state: SubtaskSnapshot | None) -> None:
        self._end(subtask)
        rows = self._rows(subtask)
        running = self._idle_loop(rows.spec)
        part = f"{self._parallelism.subtask}_{subtask}"
        running.loop.callback_context = self._callback_context(part)
        running.loop.start(self._trial.config, rows, self._seed(subtask))
        self._stop_autologging()
        if state is not None:
            running.loop.restore(checkpoint_of(state.files))
        self._running[subtask] = running

    def _idle_loop(self, spec: Any) -> _Running:
        """Return an idle loop, preferably with programs for such rows, or else a new one."""
        from tune_tf.training.core.loop import GraphLoop

        traced = [each for each in self._idle if spec in each.specs]
        if self._idle:
            idle = (traced or self._idle)[0]
            self._idle.remove(idle)
            return _Running(idle.loop, idle.specs | {spec})
        frozen = self.frozen_outputs(self._replicas)
        loop = GraphLoop(self._workload, self._replicas, self._parallelism, frozen=frozen)
        return _Running(loop, {spec})

    def _end(self, subtask: int) -> None:
        running = self._running.pop(subtask, None)
        if running is not None:
            running.loop.finish()
            self._idle.append(running)

    def _end_all(self) -> None:
        for subtask in tuple(self._running):
            self._end(subtask)

    def _seed(self, subtask: int) -> int:
        seed = self._trial.seed
        if self._parallelism.splits_rows or subtask == 0:
            return seed
        return derive_seed(seed, subtask)

    def _rows_by_subtask(self, data: Any, config: Config) -> "Callable[[int], DeviceRows]":
        """Return a function from a subtask to its rows on the device."""
        from tune_tf.data import FoldedRows
        from tune_tf.data.rows import has_datasets
        from tune_tf.training.input.device_rows import place_rows

        if self._parallelism.splits_rows:
            seed = self._settings.seed or 0  # equal for all trials of a sweep
            folds = FoldedRows(data, self._parallelism, seed=seed, floatx=self._floatx)

            @functools.cache
            def rows_of_subtask(subtask: int) -> "DeviceRows":
                return place_rows(folds.rows(subtask), self._replicas)

            return rows_of_subtask
        separate = has_datasets(data)  # each reads its own

        @functools.cache
        def place_once(key: int) -> "DeviceRows":  # on first use, after the rows before are dropped
            return self._place(data, config, self._replicas)

        return lambda subtask: place_once(subtask if separate else 0)
