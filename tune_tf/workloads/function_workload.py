"""Workload of a function that builds the model, and of data at hand."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

from tune_tf.workload import Config, Data, Workload


class FunctionWorkload(Workload):
    """Workload made of a function from a config to a compiled model, and of data.

    Args:
        model: Returns a compiled Keras model for a trial's values.
        data: The data sets, or a function from a config to them.
        callbacks: Keras callbacks, copied for each trial.
    """

    def __init__(
        self,
        model: Callable[[Config], Any],
        data: Data | Callable[[Config], Data],
        callbacks: Sequence[Any] = (),
    ) -> None:
        self.model_function = model  # which names the workload
        self.data = data
        self._callbacks = tuple(callbacks)

    def build_model(self, config: Config) -> Any:
        """Return the function's model."""
        return self.model_function(config)

    def load_data(self, config: Config) -> Data:
        """Return the data."""
        return self.data if isinstance(self.data, Data) else self.data(config)

    def callbacks(self, config: Config) -> Sequence[Any]:
        """Return copies of the callbacks, which have state."""
        return copy.deepcopy(self._callbacks)
