"""Epochs by ``keras.Model.fit``, called once an epoch as inside a trial."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

Arrays = tuple[np.ndarray, np.ndarray]
Order = Callable[[int], np.ndarray]
"""``order(epoch)``: row numbers of an epoch."""


class FitEpochs:
    """``fit(x, y, epochs=1, validation_data=...)`` on NumPy arrays.

    Args:
        model: Compiled, built in the scope of its strategy.
        train: Training rows.
        validation: Validation rows.
        order: The order of the rows; they are brought into it outside of the timed part.
        batch_size: Rows of one gradient update.
    """

    def __init__(
        self,
        model: keras.Model,
        train: Arrays,
        validation: Arrays,
        *,
        order: Order,
        batch_size: int,
    ) -> None:
        self.losses: list[tuple[float, float]] = []
        self._model = model
        self._train = train
        self._validation = validation
        self._order = order
        self._batch_size = batch_size
        self._permuted = train

    def prepare(self) -> None:
        """Permute the rows for the epoch."""
        rows = self._order(len(self.losses))
        self._permuted = (self._train[0][rows], self._train[1][rows])

    def run(self) -> None:
        """Train and validate for one epoch."""
        x, y = self._permuted
        history = self._model.fit(
            x,
            y,
            epochs=1,
            batch_size=self._batch_size,
            validation_data=self._validation,
            shuffle=False,
            verbose=0,
        )
        self._keep(history)

    def _keep(self, history: Any) -> None:
        self.losses.append((history.history["loss"][-1], history.history["val_loss"][-1]))


class TunedFitEpochs(FitEpochs):
    """Fastest known way to call ``fit``: a batched pipeline and one graph call per epoch.

    Needs ``steps_per_execution`` in ``compile`` to cover the epoch, and batches of one size. The
    pipelines are made outside of the timed part.
    """

    def prepare(self) -> None:
        """Create the epoch's pipelines."""
        super().prepare()
        self._train_set = self._batches(self._permuted)
        self._validation_set = self._batches(self._validation)

    def run(self) -> None:
        """Train and validate for one epoch."""
        history = self._model.fit(
            self._train_set,
            epochs=1,
            validation_data=self._validation_set,
            shuffle=False,
            verbose=0,
        )
        self._keep(history)

    def _batches(self, arrays: Arrays) -> tf.data.Dataset:
        rows = tf.data.Dataset.from_tensor_slices(arrays)
        return rows.batch(self._batch_size).prefetch(tf.data.AUTOTUNE)
