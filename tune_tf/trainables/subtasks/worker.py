"""Worker process that trains some of a trial's subtasks in turn.

TensorFlow is imported in methods only, so that the trial's actor does not load it.
"""

import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import ray

from tune_tf.parallelism import Ensemble, Folds
from tune_tf.tracking.trial_run import enter_trial, leave_trial
from tune_tf.trainables.multi_process.checkpoint_files import Files
from tune_tf.trainables.multi_process.worker import (
    EpochReport,
    TrialProcess,
    TrialStart,
    WorkerAssignment,
    checkpoint_of,
    files_of,
)
from tune_tf.trainables.multi_process.worker_actor import WorkerActor
from tune_tf.training.core.seeds import trial_seed
from tune_tf.training.system_metrics import peak_memory_result
from tune_tf.workload import Config

if TYPE_CHECKING:
    from tune_tf.data import LoadCache
    from tune_tf.training.core.loop import GraphLoop
    from tune_tf.training.core.replicas import Replicas
    from tune_tf.training.input.device_rows import DeviceRows


@dataclass(frozen=True, kw_only=True)
class SubtaskAssignment(WorkerAssignment):
    """Setup of a process for all trials that it serves.

    Args:
        subtasks: Parallelism of the trials.
        split_seed: Seed of the split into folds, equal for all trials of a sweep.
    """

    subtasks: Folds | Ensemble
    split_seed: int = 0


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


class SubtaskWorker(TrialProcess):
    """Worker that trains subtasks, one epoch of one subtask per call.

    A loop keeps its traced programs. Idle loops are reused, first those that have seen rows of the
    same shapes.
    """

    def __init__(self, rank: int, host: str, node: str) -> None:
        super().__init__(rank, host, node)
        self._assignment: SubtaskAssignment
        self._replicas: Replicas
        self._data: LoadCache[_Placing]
        self._trial: TrialStart
        self._placing: _Placing
        self._number = 0
        self._void = 0
        self._running: dict[int, _Running] = {}
        self._idle: list[_Running] = []

    def prepare(self, assignment: SubtaskAssignment) -> str:
        """Load the workload, claim the device, and return the device's name.

        Raises:
            WorkloadError: The workload cannot be imported on this node.
            UnavailableResourcesError: The reserved device is missing.
        """
        self._claim(assignment)
        from tune_tf.data import LoadCache
        from tune_tf.training.core.replicas import Replicas

        self._replicas = Replicas(self._devices)
        self._data = LoadCache(self._load)
        return f"{self._devices} on {self._node}"

    def start(self, number: int, trial: TrialStart) -> None:
        """Begin a trial, after ending the previous one; ``number`` is the trial's in the pool."""
        self._end_all()
        self._number, self._trial = number, trial
        with self._beginning(trial):
            self._placing = self._data.get(trial.config)

    def epoch(
        self, number: int, subtask: int, begins: bool = False, state: SubtaskSnapshot | None = None
    ) -> EpochReport | None:
        """Train and validate a subtask for one epoch.

        Args:
            number: Number of the trial in the pool.
            subtask: Number of the subtask.
            begins: Whether the subtask is new on this device.
            state: State to begin from; None for the first epoch.

        Returns:
            None if nothing was trained because the subtask or the trial has ended meanwhile.
        """
        if number <= self._void or number != self._number:
            return None
        enter_trial(self._trial.trial_id, self._assignment.tracking)
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
        numbers = {name: value for name, value in metrics.items() if isinstance(value, int | float)}
        running.has_ended = running.loop.stop_training
        loops = [each.loop for each in (*self._running.values(), *self._idle)]
        recycle = self._is_recycled(sum(loop.num_programs for loop in loops))
        load = self._sampled() | running.loop.performance | peak_memory_result()
        return EpochReport(numbers, running.has_ended, recycle, load)

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
        self._void = number

    def finish(self) -> None:
        """End the trial."""
        self._end_all()
        leave_trial()

    def _begin(self, subtask: int, state: SubtaskSnapshot | None) -> None:
        self._end(subtask)
        rows = self._placing.rows(subtask)
        running = self._idle_loop(rows.spec)
        running.loop.start(self._trial.config, rows, self._seed(subtask))
        self._stop_autologging()
        if state is not None:
            running.loop.restore(checkpoint_of(state.files))
        self._running[subtask] = running

    def _idle_loop(self, spec: Any) -> _Running:
        """Return an idle loop, preferably with programs for such rows, or else a new one."""
        from tune_tf.training.core.loop import GraphLoop

        traced = [each for each in self._idle if spec in each.specs]
        for idle in (*traced, *self._idle)[:1]:
            self._idle.remove(idle)
            return _Running(idle.loop, idle.specs | {spec})
        loop = GraphLoop(self._workload, self._replicas, self._assignment.spread)
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
        if isinstance(self._assignment.subtasks, Folds) or subtask == 0:
            return seed
        return trial_seed(seed, subtask)

    def _load(self, config: Config) -> "_Placing":
        from tune_tf.data import FoldedRows, rows_of

        data, floatx = self._loads.load(config), self._floatx
        subtasks = self._assignment.subtasks
        if not isinstance(subtasks, Folds):
            return _Placing(self._replicas, rows_of(data, floatx=floatx))
        seed = self._assignment.split_seed
        return _Placing(self._replicas, FoldedRows(data, subtasks, seed=seed, floatx=floatx))


class _Placing:
    """Rows of subtasks, copied to the device on first use."""

    def __init__(self, replicas: "Replicas", rows: Any) -> None:
        self._replicas = replicas
        self._rows = rows
        self._placed = functools.cache(self._place)

    def rows(self, subtask: int) -> "DeviceRows":
        from tune_tf.data import FoldedRows

        return self._placed(subtask if isinstance(self._rows, FoldedRows) else None)

    def _place(self, fold: int | None) -> "DeviceRows":
        from tune_tf.training.input.device_rows import place_rows

        return place_rows(self._rows if fold is None else self._rows.rows(fold), self._replicas)


class SubtaskActor(WorkerActor):
    """Ray actor of a :class:`SubtaskWorker`."""

    worker_class: type[TrialProcess] = SubtaskWorker

    @ray.method(concurrency_group="aside")  # type: ignore[untyped-decorator]
    def do_aside(self, method: str, *arguments: Any) -> Any:
        """Call a method of the worker concurrently with training; see :meth:`WorkerActor.do`."""
        return self.do(method, *arguments)
