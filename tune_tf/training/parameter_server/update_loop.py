"""Training loop of a parameter server."""

from typing import Any

from tune_tf.errors import WorkloadError
from tune_tf.result_keys import Metrics
from tune_tf.training.callbacks import EpochCallbacks
from tune_tf.training.core.loop import DryRunLoop, LoopTrial
from tune_tf.training.core.program import Program
from tune_tf.training.input.device_rows import DeviceRows
from tune_tf.training.parameter_server.messages import Array, Gradient
from tune_tf.training.parameter_server.update_program import UpdateProgram
from tune_tf.workload import Config


class UpdateLoop(DryRunLoop):
    """Loop that applies gradients of one trial after another, one update per batch.

    Trials of one structure share programs.
    """

    program_class: type[Program] = UpdateProgram

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._rows: Array

    @property
    def program(self) -> UpdateProgram:
        """Update program of the current trial."""
        return _of(self._current)

    def open_epoch(self) -> None:
        """Begin an epoch."""
        trial = self._current
        trial.callbacks.epoch_begin(trial.epoch)
        self._rows = self._order(trial.config, trial.rows, trial.seed, trial.epoch)
        self.program.begin()

    def rows_of(self, batch: int) -> Array:
        """Return the row numbers of a batch of this epoch."""
        return self.program.rows_of(batch, self._rows)

    def apply(self, gradient: Gradient) -> None:
        """Apply a gradient."""
        self.program.apply(gradient)

    def close_epoch(self, increments: list[Array], validation: Metrics | None) -> Metrics:
        """End an epoch; return its metrics, merged with those of the validation.

        ``increments`` holds what each batch adds to each counter of the model.
        """
        trial = self._current
        self.program.count(increments)
        metrics = self.program.metrics()
        trial.epoch += 1
        metrics = trial.callbacks.epoch_end(trial.epoch - 1, metrics | (validation or {}))
        if self.stop_training:
            trial.callbacks.train_end()
        return metrics

    def _callbacks(self, config: Config, rows: DeviceRows, model: Any) -> EpochCallbacks:
        callbacks = super()._callbacks(config, rows, model)
        if callbacks.watch_validation and rows.num_validation and rows.validation is None:
            raise WorkloadError(
                "a callback with on_test_begin or on_test_end has to be called around validation, "
                "but the workers of a parameter server validate: leave it out, or use kind "
                "'mirrored'"
            )
        return callbacks

    def _dry_run(self, trial: LoopTrial) -> bool:
        return _of(trial).dry_run()


def _of(trial: LoopTrial) -> UpdateProgram:
    program = trial.program
    if not isinstance(program, UpdateProgram):
        raise TypeError(f"{type(program).__name__} applies no gradients")
    return program
