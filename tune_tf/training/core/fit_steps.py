"""Steps that ``keras.Model.fit`` runs in place of the model's own: on replicas, or a workload's."""

from collections.abc import Callable
from functools import partial
from typing import Any

import tensorflow as tf

from tune_tf.training.core.build import build_from_types
from tune_tf.training.core.epoch import run_whole_batch
from tune_tf.training.core.step import Step
from tune_tf.training.core.update import prepare_optimizer
from tune_tf.training.keras_internals import hide_strategy


class FitSteps:
    """Steps of ``fit`` and ``evaluate`` whose replicas share each batch.

    ``fit`` drives epochs, data and callbacks as on one device, and sees no strategy.

    Args:
        step: Step of the model to train.
        num_rows: Training rows; 0 if unknown.
        batch_size: Rows of a batch; 0 if unknown.
    """

    def __init__(self, step: Step, num_rows: int, batch_size: int) -> None:
        self._step = step
        self._num_rows, self._batch_size = num_rows, batch_size
        self._is_prepared = step.replicas.num == 1
        if step.replicas.num > 1:
            hide_strategy(step.model)
            step.model.jit_compile = False  # XLA compiles for one device

    def install(self) -> None:
        """Let the model make its functions for ``fit`` and ``evaluate`` from these steps."""
        model = self._step.model
        steps = {
            "train": partial(self._run, self._step.train, training=True),
            "test": partial(self._run, self._step.test, training=False),
        }
        for name, step in steps.items():
            make = getattr(model, f"make_{name}_function")
            replaced = partial(self._make_function, f"{name}_step", step, make)
            setattr(model, f"make_{name}_function", replaced)

    def _make_function(
        self,
        name: str,
        step: Callable[[Any], Any],
        make: Callable[[bool], None],
        force: bool = False,
    ) -> None:
        model = self._step.model
        own = getattr(model, name)
        setattr(model, name, step)
        try:
            make(force)
        finally:
            setattr(model, name, own)  # which the step may call

    def _run(self, run: Callable[..., Any], batch: Any, *, training: bool) -> dict[str, tf.Tensor]:
        self._prepare(batch)
        step = self._step
        with step.replicas.scope():  # Keras calls this in the scope of the default strategy
            result = run_whole_batch(
                step.replicas,
                lambda replica, rows, numbers, num_rows: run(replica, rows, num_rows),
                batch,
                is_custom=step.has_custom_train if training else step.has_custom_test,
            )
            return step.logs(result, training=training)

    def _prepare(self, batch: Any) -> None:
        """Create the variables of several replicas and make their optimizer exact, once.

        This is done at the first batch and from its types, since data that are read twice may
        shuffle otherwise.
        """
        if self._is_prepared:
            return
        step = self._step
        build_from_types(
            step.model, tf.nest.map_structure(tf.type_spec_from_value, batch), step.replicas
        )
        step.check(self._num_rows, self._batch_size)
        prepare_optimizer(step.model, step.replicas)
        self._is_prepared = True
