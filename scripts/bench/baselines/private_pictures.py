"""Trials that each decode their own pictures, as Ray Tune's users write them."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from ray import tune


class PrivatePictures(tune.Trainable):
    """Trainable that decodes all pictures when a trial starts, then calls ``model.fit``."""

    def setup(
        self,
        config: dict[str, Any],
        *,
        paths: Sequence[str],
        decode: Callable[[str], "np.ndarray[Any, Any]"],
        labels: "np.ndarray[Any, Any]",
        build: Callable[[dict[str, Any]], keras.Model],
        seed: int,
    ) -> None:
        """Start the first trial of this process."""
        self._paths, self._decode, self._labels = paths, decode, labels
        self._build, self._seed = build, seed
        self._begin(config)

    def step(self) -> dict[str, Any]:
        """Train for an epoch."""
        history = self._model.fit(*self._rows, batch_size=64, shuffle=False, verbose=0)
        return {name: values[0] for name, values in history.history.items()}

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Start another trial."""
        self._begin(new_config)
        return True

    def _begin(self, config: dict[str, Any]) -> None:
        rows = np.stack([self._decode(path) for path in self._paths])
        self._rows = rows, self._labels
        keras.utils.set_random_seed(self._seed)
        self._model = self._build(config)
