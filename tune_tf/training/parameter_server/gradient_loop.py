"""Training loop of a parameter server's worker."""

from typing import Any

from tune_tf.training.callbacks import EpochCallbacks
from tune_tf.training.core.loop import DryRunLoop, LoopTrial
from tune_tf.training.core.program import Program
from tune_tf.training.input.device_rows import DeviceRows
from tune_tf.training.parameter_server.gradient_program import GradientProgram
from tune_tf.training.parameter_server.messages import Array, Task, TaskResult
from tune_tf.workload import Config


class GradientLoop(DryRunLoop):
    """Loop that computes gradients of one trial after another, one task per call.

    Trials of one structure share programs. The server runs the workload's callbacks.
    """

    program_class: type[Program] = GradientProgram

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._values: dict[int, Array] = {}
        self._version: int | None = None

    @property
    def version(self) -> int | None:
        """Version of the worker's weights; None if it has none."""
        return self._version

    def start(self, config: Config, rows: DeviceRows, seed: int) -> None:
        """Begin a trial, whose weights arrive with the first task."""
        super().start(config, rows, seed)
        self._values, self._version = {}, None

    def do(self, task: Task) -> TaskResult:
        """Process a task and return its result."""
        self._values.update(task.weights)
        self._version = task.version
        trial = self._current
        program = gradient_program_of(trial)
        done = (task.epoch, task.batch, task.version)
        if task.batch is None or task.rows is None:
            program.load(self._values)
            return TaskResult(*done, validation=program.validate(trial.rows.validation))
        program.load(self._values, batch=task.batch)
        gradient = program.gradient(trial.rows.train, task.rows, task.loss_scale)
        return TaskResult(*done, gradient, program.increments)

    def _dry_run(self, trial: LoopTrial) -> bool:
        return gradient_program_of(trial).dry_run(trial.rows.train)

    def _callbacks(self, config: Config, rows: DeviceRows, model: Any) -> EpochCallbacks:
        return EpochCallbacks((), model)


def gradient_program_of(trial: LoopTrial) -> GradientProgram:
    """Return the gradient program of a trial."""
    program = trial.program
    if not isinstance(program, GradientProgram):
        raise TypeError(f"{type(program).__name__} computes no gradients")
    return program
