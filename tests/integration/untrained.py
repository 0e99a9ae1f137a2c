"""The command line of ``scripts/sweep.py``, with trials that train nothing.

The best model is a folder without a model: where the driver is the point, TensorFlow takes longer
to load than all the rest of a sweep.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from ray import tune
from ray.tune.result import SHOULD_CHECKPOINT


class Untrained(tune.Trainable):
    """Reports a curve that follows from the config, and saves its iteration at each tenth."""

    def setup(self, config: dict[str, Any]) -> None:
        """Take up a config."""
        self._values = config

    def step(self) -> dict[str, float | bool]:
        """Do one iteration."""
        rate, iteration = self._values["learning_rate"], self.iteration + 1
        return {
            "val_accuracy": 1 - rate - 0.1 / iteration,
            "loss": rate + 0.1 / iteration,
            SHOULD_CHECKPOINT: iteration % 10 == 0,
        }

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Write a file like those of the package's own trials."""
        head = np.array(json.dumps({"format": 1, "epoch": self.iteration}))
        np.savez(Path(checkpoint_dir, "trial.npz"), head=head)

    def load_checkpoint(self, checkpoint: str) -> None:
        """Go on: Tune counts the iterations."""

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take up another config."""
        self._values = new_config
        return True


class FolderWithoutModel:
    """Writes what MLflow takes for a model's folder, in a process of its own."""

    def write(self, workload: Any, config: Any, checkpoint: Any, path: Path, metadata: Any) -> None:
        """Write the folder."""
        from mlflow.models import Model

        from tune_tf.atomic_files import atomic_path

        with atomic_path(path) as folder:
            (folder / "data").mkdir(parents=True)
            (folder / "data" / "weights").write_text("of no model")
            Model(metadata=metadata).save(str(folder / "MLmodel"))

    def evaluate(self, workload: Any, config: Any, checkpoint: Any) -> dict[str, float]:
        """Return metrics of no model."""
        return {"test_loss": 0.25}


def main() -> None:
    """Do what the command line says, and train nothing."""
    from tune_tf.cli import main
    from tune_tf.sweep import runner
    from tune_tf.sweep.model import export_process

    runner.trainable = lambda *_, **__: Untrained
    export_process.ExportActor = FolderWithoutModel
    main()


if __name__ == "__main__":
    main()
