"""A sweep whose trials keep their best epoch: one value in all places, and its model."""

import numpy as np
import pytest
from three_systems import assert_truth, study_of

from tune_tf import SweepConfig, run_sweep
from tune_tf.inspection import SweepView
from tune_tf.outcome import Outcome
from tune_tf.tracking.store import connect

WORKLOAD = """
import keras
import numpy as np
from tune_tf.workload import Data, Workload


class Worsening(Workload):
    def load_data(self, config):
        rng = np.random.default_rng(0)
        x = rng.normal(size=(32, 4)).astype("float32")
        y = x.sum(1, keepdims=True) + rng.normal(size=(32, 1)).astype("float32")
        return Data((x, y), (x[:16], y[:16]))

    def build_model(self, config):
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.02), "mse", metrics=["mae"])
        return model

    def callbacks(self, config):
        rate = lambda epoch, _: 0.7 if epoch >= config["good"] else 0.02
        return [keras.callbacks.LearningRateScheduler(rate)]

    def global_batch_size(self, config):
        return 8
"""


@pytest.fixture(scope="module", params=["fifo", "freeze_thaw"])
def swept(request, tmp_path_factory, ray_cluster, empty_store):
    folder = tmp_path_factory.mktemp("sweep")
    (folder / "worsening.py").write_text(WORKLOAD)
    scheduler = {"name": request.param}
    if request.param == "freeze_thaw":
        scheduler |= {"reduction_factor": 2}
    config = SweepConfig.from_dict(
        {
            "name": "kept",
            "workload": "worsening.py:Worsening",
            "objective": {"metric": "val_loss", "mode": "min"},
            "space": {"good": {"int": [1, 4]}},
            "epochs": 6,
            "scheduler": scheduler,
            "keep": "best",
            "keep_checkpoints": 2,
            "checkpoint_interval_s": 0,
            "searcher": {"sampler": "grid"},
            "budget": {"num_samples": 4},
            "max_concurrent_trials": 2,
            "mlflow": {"tracking_uri": f"sqlite:///{folder}/mlflow.db"},
            "storage_path": str(folder / "sweeps"),
        }
    )
    return run_sweep(config, base_dir=folder)


@pytest.mark.tf
@pytest.mark.mlflow
@pytest.mark.cluster
@pytest.mark.slow
class TestKeptEpoch:
    """What is said of the trials of one sweep."""

    def test_the_value_is_that_of_the_best_epoch_in_each_system(self, swept):
        assert_truth(swept.path)
        view = SweepView.open(swept.path)
        run_ids = {trial.trial_id: trial.mlflow_run_id for trial in view.trials}
        study = {it.user_attrs["tune_trial_id"]: it for it in study_of(swept.path).trials}
        client = connect(swept.config.mlflow.tracking_uri)
        improved = 0
        for trial, seen in zip(swept.trials, view.result.trials, strict=True):
            told = study[trial.trial_id]
            curve = told.intermediate_values
            value = trial.metrics["val_loss"]
            assert value == pytest.approx(min(curve.values()), abs=1e-9)
            assert trial.iterations == max(curve)
            assert curve[trial.kept_iteration] == pytest.approx(value, abs=1e-9)
            assert seen.metrics == trial.metrics
            assert seen.kept_iteration == trial.kept_iteration
            if trial.outcome is Outcome.COMPLETED:
                assert told.value == value
            run = client.get_run(run_ids[trial.trial_id])
            assert run.data.metrics["kept/val_loss"] == value
            history = client.get_metric_history(run.info.run_id, "val_loss")
            assert {point.step: point.value for point in history} == curve
            improved += trial.kept_iteration < trial.iterations
        assert improved
        parent = client.get_run(swept.mlflow_run_id)
        assert parent.data.metrics["best/val_loss"] == swept.best_value
        assert parent.data.tags["tune_tf.best_trial_id"] == swept.best_trial.trial_id

    def test_the_best_model_is_that_of_the_best_epoch(self, swept, monkeypatch):
        monkeypatch.chdir(swept.base_dir)
        model = swept.best_model()
        rng = np.random.default_rng(0)
        x = rng.normal(size=(32, 4)).astype("float32")
        y = x.sum(1, keepdims=True) + rng.normal(size=(32, 1)).astype("float32")
        loss, _ = model.evaluate(x[:16], y[:16], verbose=0)
        assert loss == pytest.approx(swept.best_value, abs=1e-6)
