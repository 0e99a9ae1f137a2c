"""Sequential trials in a process, each with a fresh model and ``fit(epochs=1)`` per epoch."""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import psutil

from tune_tf.workload import Workload


@dataclass(frozen=True)
class TrialTimes:
    """Durations of a trial.

    Args:
        first_start_s: From the config to the start of the first epoch.
        first_end_s: From the config to the end of the first epoch.
        all_s: From the config to the end of the last epoch.
        resident_bytes: Memory of the process afterwards.
        loss: Training loss of the last epoch.
        num_programs: Programs that the process has traced so far; 0 where nobody counts.
    """

    first_start_s: float
    first_end_s: float
    all_s: float
    resident_bytes: int
    loss: float
    num_programs: int = 0


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    return int(psutil.Process().memory_info().rss)


class FitTrials:
    """Trial runner that builds a new model per config.

    ``keras.backend.clear_session()`` before each model, which some recommend, is left out: it
    makes each trial slower and does not stop the growth of the process.

    Args:
        workload: Data, loaded once, and model.
        num_epochs: Epochs of a trial.
    """

    def __init__(self, workload: Workload, num_epochs: int) -> None:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        import keras

        self._build: Callable[[Mapping[str, Any]], keras.Model] = workload.build_model
        self._data = workload.load_data({})
        self._num_epochs = num_epochs

    def __call__(self, config: Mapping[str, Any]) -> TrialTimes:
        """Run one trial."""
        started = time.perf_counter()
        model = self._build(config)
        first_start = time.perf_counter()
        x, y = self._data.train
        first_end = 0.0
        for _ in range(self._num_epochs):
            history = model.fit(
                x,
                y,
                epochs=1,
                batch_size=config["batch_size"],
                validation_data=self._data.validation,
                verbose=0,
            )
            first_end = first_end or time.perf_counter()
        return TrialTimes(
            first_start_s=first_start - started,
            first_end_s=first_end - started,
            all_s=time.perf_counter() - started,
            resident_bytes=resident_bytes(),
            loss=history.history["loss"][-1],
        )
