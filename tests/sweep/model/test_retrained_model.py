"""How long a final model trains, and what it is tested on."""

import contextlib
from types import SimpleNamespace

import pytest

from tune_tf.parallelism import Mirrored
from tune_tf.sweep.model import retrain
from tune_tf.sweep.model.retrain import retrain_trial


@pytest.fixture
def trained(sweeps, monkeypatch):
    """Retrain an ended sweep's trial without training; return the sweep and what was asked.

    The trial of three epochs keeps its second one.
    """
    sweep = sweeps(keep="best", mlflow=None, scheduler={"name": "fifo", "max_t": 3})
    sweep.run(0, 0.3, 0.8, 0.7, **{"kept/val_accuracy": 0.8, "kept/training_iteration": 2})
    sweep.checkpoint(0, 3)
    sweep.finish()
    told = SimpleNamespace(epochs=None, sweep=sweep)

    def train(config, workload, source, on, parallelism, epochs, path, recorder):
        told.epochs = epochs
        recorder.epochs[epochs] = (0, {"loss": 0.5})
        return SimpleNamespace(checkpoint=SimpleNamespace(path=str(path / "checkpoint_000000")))

    class Export:
        def write(self, workload, config, checkpoint, path, metadata):
            return path

        def evaluate(self, workload, config, location):
            return {"test_accuracy": 0.9}

    workload = SimpleNamespace(check_data=lambda: None)
    monkeypatch.setattr(retrain, "import_workload", lambda *_: workload)
    monkeypatch.setattr(retrain, "cluster", contextlib.nullcontext)
    monkeypatch.setattr(retrain, "runs_as_user", lambda: True)
    monkeypatch.setattr(retrain, "ModelExportProcess", lambda: contextlib.nullcontext(Export()))
    monkeypatch.setattr(retrain, "final_parallelism", lambda *_: Mirrored(1))
    monkeypatch.setattr(retrain, "_train", train)
    return told


@pytest.mark.parametrize(("asked", "epochs"), [(None, 2), (5, 5)])
def test_a_final_model_trains_for_as_many_epochs_as_the_trial_keeps(trained, asked, epochs):
    final = retrain_trial(trained.sweep.path, num_epochs=asked)
    assert final.num_epochs == trained.epochs == epochs
    assert final.metrics == {"loss": 0.5, "test_accuracy": 0.9}
