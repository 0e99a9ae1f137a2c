"""Immediate writing of result files of trials."""

import json
import os
from pathlib import Path
from typing import Any

from ray.tune import Callback, Checkpoint
from ray.tune.experiment import Trial
from ray.tune.utils.util import SafeFallbackEncoder

from tune_tf.atomic_files import append_line, write_atomically
from tune_tf.inspection.reported_results import REMOTE_CHECKPOINT, RESULTS
from tune_tf.sweep.state.storage import SweepStorage
from tune_tf.sweep.trial_results import trial_name

_PARAMS = "params.json"


class ResultFiles(Callback):
    """Tune callback that writes ``result.json`` and ``params.json`` like Tune's own logger.

    Tune's logger writes to a staging folder that is copied at intervals, so a killed driver loses
    the last seconds. This callback appends each result to the sweep's folder at once.
    """

    def __init__(self, folder: Path, storage: SweepStorage) -> None:
        self._folder = folder
        self._storage = storage

    def on_trial_start(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """Write the trial's config, as the scheduler may have changed it."""
        path = self._folder_of(trial)
        text = json.dumps(trial.config, indent=2, sort_keys=True, cls=SafeFallbackEncoder)
        write_atomically(path / _PARAMS, text + "\n", on_disk=False)

    def on_trial_result(
        self,
        iteration: int,
        trials: list[Trial],
        trial: Trial,
        result: dict[str, Any],
        **info: Any,
    ) -> None:
        """Append a result.

        Raises:
            OSError: The disk is full; the file is unchanged.
        """
        path = self._folder_of(trial) / RESULTS
        line = json.dumps(result, cls=SafeFallbackEncoder).encode()
        file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            append_line(file, line, path)
        finally:
            os.close(file)

    def on_checkpoint(
        self,
        iteration: int,
        trials: list[Trial],
        trial: Trial,
        checkpoint: Checkpoint,
        **info: Any,
    ) -> None:
        """Write the URI of the last checkpoint if it is in remote storage."""
        place = self._storage.place(checkpoint.path)
        if isinstance(place, str):
            write_atomically(
                self._folder_of(trial) / REMOTE_CHECKPOINT, place + "\n", on_disk=False
            )

    def _folder_of(self, trial: Trial) -> Path:
        path = self._folder / trial_name(trial)
        path.mkdir(exist_ok=True)
        return path
