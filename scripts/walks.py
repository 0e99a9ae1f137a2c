"""Count the files on five walks through tune_tf by the call stacks of a sweep.

A config from its sweep file to the training step, a batch from `load_data` to its gradient, a
checkpoint from save to restore, a result from the training step to MLflow, and a suggestion from
Optuna to a trial of Ray Tune. Runs one trial of a perceptron on this machine:

    python scripts/walks.py
"""

import contextlib
import functools
import inspect
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import keras
import mlflow
import numpy as np
import optuna
import ray
from ray import tune

import tune_tf
from tune_tf.record import Record
from tune_tf.training.checkpoint import Checkpoint
from tune_tf.workloads.digits import DigitsMLP

PACKAGE = Path(tune_tf.__file__).parent

CONFIG = "config to training step"
BATCH = "batch to gradient"
CHECKPOINT = "checkpoint to restored trial"
RESULT = "result to MLflow"
SUGGESTION = "suggestion to trial"
LIMITS = {CONFIG: 16, BATCH: 11, CHECKPOINT: 4, RESULT: 9, SUGGESTION: 4}
"""How many files each walk may have."""

SWEEP = {
    "name": "walk",
    "workload": "tune_tf.workloads.digits:DigitsMLP",
    "objective": {"metric": "val_accuracy", "mode": "max"},
    "space": {"learning_rate": {"loguniform": [1e-3, 1e-1]}, "batch_size": 64},
    "searcher": {"sampler": "tpe"},
    "epochs": 1,
    "scheduler": {"name": "asha"},
    "budget": {"num_samples": 1},
}


class Walks:
    """The package's files on the stacks that were noted, by walk, in the order of the calls."""

    def __init__(self) -> None:
        self.files: dict[str, dict[str, None]] = {name: {} for name in LIMITS}

    def note(self, *names: str) -> None:
        """Add the files on the call stack."""
        found = []
        frame: Any = inspect.currentframe()
        while frame is not None:
            path = Path(frame.f_code.co_filename)
            if path.is_relative_to(PACKAGE):
                found.append(str(path.relative_to(PACKAGE)))
            frame = frame.f_back
        for name in names:
            self.files[name].update(dict.fromkeys(reversed(found)))

    def noting(self, function: Callable[..., Any], *names: str) -> Callable[..., Any]:
        """Return the function, which notes the stack at each call."""

        @functools.wraps(function)
        def noted(*arguments: Any, **options: Any) -> Any:
            self.note(*names)
            return function(*arguments, **options)

        return noted


def run_sweep(walks: Walks, folder: Path) -> None:
    """Note the stacks of the driver of a sweep."""
    path = folder / "sweep.yaml"
    store = f"sqlite:///{folder}/mlflow.db"
    path.write_text(
        json.dumps({**SWEEP, "storage_path": f"{folder}/sweeps", "mlflow": {"tracking_uri": store}})
    )
    watched = [
        (tune_tf.SearchSpace, "__init__", CONFIG),
        (tune, "run", CONFIG),
        (Record, "record_result", RESULT),
        (mlflow.MlflowClient, "log_batch", RESULT),
        (optuna.Study, "ask", SUGGESTION),
    ]
    with contextlib.ExitStack() as patches:
        for owner, name, walk in watched:
            noting = walks.noting(getattr(owner, name), walk)
            patches.enter_context(mock.patch.object(owner, name, noting))
        tune_tf.run_sweep(tune_tf.SweepConfig.from_yaml(path))
    ray.shutdown()


def run_trial(walks: Walks, folder: Path) -> None:
    """Note the stacks of a trial, driven by hand as Tune drives it in its own process."""
    build_model = DigitsMLP.build_model

    def build_noting(self: DigitsMLP, config: dict[str, Any]) -> keras.Model:
        model = build_model(self, config)
        model.compute_loss = walks.noting(model.compute_loss, CONFIG, BATCH)
        return model

    watched: list[tuple[Any, str, str]] = [
        (DigitsMLP, "load_data", BATCH),
        (np, "savez", CHECKPOINT),
        (np, "load", CHECKPOINT),
        (Checkpoint, "load_into", CHECKPOINT),
    ]
    with contextlib.ExitStack() as patches:
        patches.enter_context(mock.patch.object(DigitsMLP, "build_model", build_noting))
        for owner, name, walk in watched:
            noting = walks.noting(getattr(owner, name), walk)
            patches.enter_context(mock.patch.object(owner, name, noting))
        trial = tune_tf.trainable(DigitsMLP)(config={"learning_rate": 0.01, "batch_size": 64})
        try:
            trial.train()
            trial.restore(trial.save(str(folder)))
            trial.train()
        finally:
            trial.stop()


def main() -> int:
    """Print the walks; return 1 if one is longer than it may be."""
    walks = Walks()
    with tempfile.TemporaryDirectory() as folder:
        run_sweep(walks, Path(folder))
        run_trial(walks, Path(folder) / "trial")
    for name, files in walks.files.items():
        print(f"{name}: {len(files)} files, {LIMITS[name]} at most")
        print(*(f"  {file}" for file in files), sep="\n")
    return int(any(len(files) > LIMITS[name] for name, files in walks.files.items()))


if __name__ == "__main__":
    sys.exit(main())
