"""Tune's own files of a sweep, written without a Ray cluster."""

import json
import zipfile
from pathlib import Path

import numpy as np
from ray import cloudpickle
from ray.train._internal.session import _TrainingResult
from ray.train._internal.storage import StorageContext
from ray.tune import Checkpoint, CheckpointConfig
from ray.tune.experiment import Trial
from tune_tf.sweep.state.snapshots import SnapshotWriter

SESSION = "2026-11-22_07-39-43"


class TuneFiles:
    """Writes what Tune and its trials write, for a :class:`sweep_in_progress.SweepInProgress`."""

    def __init__(self, sweep):
        self.sweep = sweep
        self.trials = {}
        self.counter = 0
        self.snapshots = SnapshotWriter(sweep.path)

    def trial(self, number, trial_id, config):
        storage = StorageContext(str(self.sweep.path.parent), self.sweep.path.name)
        storage.trial_dir_name = f"trial_{number:05d}"
        trial = Trial(
            "trainable",
            config=config,
            trial_id=trial_id,
            storage=storage,
            experiment_tag=f"{number + 1}_width=8",
            stub=True,
            checkpoint_config=CheckpointConfig(num_to_keep=2),
        )
        trial.relative_logdir = trial.custom_dirname = f"trial_{number:05d}"
        self.trials[number] = trial
        self.counter = max(self.counter, number + 1)
        return trial

    def checkpoint(self, number, iteration):
        """Write a checkpoint, and have Tune know it."""
        trial = self.trials[number]
        folder = write_checkpoint(self.sweep.path, number, iteration)
        metrics = {"training_iteration": iteration}
        trial.on_checkpoint(_TrainingResult(Checkpoint(str(folder)), metrics))

    def report(self, number, iteration):
        trial = self.trials[number]
        trial.run_metadata.last_result = {
            "training_iteration": iteration,
            "trial_id": trial.trial_id,
        }

    def end(self, number):
        self.trials[number].set_status(Trial.TERMINATED)

    def state(self):
        """Return the files of a state."""
        counts = {
            "counter": self.counter,
            "total_samples": 8,
            "finished": False,
            "experiment": None,
        }
        whole = {
            "trial_data": [trial.get_json_state() for trial in self.trials.values()],
            "runner_data": {},
            "stats": {},
        }
        return {
            f"experiment_state-{SESSION}.json": json.dumps(whole).encode(),
            f"search_gen_state-{SESSION}.json": cloudpickle.dumps(counts),
            f"searcher-state-{SESSION}.pkl": cloudpickle.dumps({"page": list(range(50))}),
            f"callback-states-{SESSION}.pkl": cloudpickle.dumps({0: {"ended": {}}}),
        }

    def save(self):
        """Write the state as a driver does: loose, and as a snapshot."""
        for name, content in self.state().items():
            (self.sweep.path / name).write_bytes(content)
        self.snapshots.put(self.state())
        self.snapshots.close()


def write_checkpoint(path: Path, number: int, iteration: int) -> Path:
    """Write a trial's checkpoint as the package's own are: an archive with a head."""
    folder = path / f"trial_{number:05d}" / f"checkpoint_{iteration - 1:06d}"
    folder.mkdir(parents=True)
    head = np.array(json.dumps({"format": 1, "epoch": iteration}))
    np.savez(folder / "trial.npz", head=head, a0=np.arange(300.0) + iteration)
    assert zipfile.is_zipfile(folder / "trial.npz")
    return folder
