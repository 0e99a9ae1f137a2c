"""A sweep of cross-validated trials from its file, with ASHA, TPE and MLflow."""

from pathlib import Path

import numpy as np
import pytest

from tune_tf import SweepConfig, run_sweep
from tune_tf.tracking.store import connect
from tune_tf.workloads.digits import DigitsMLP

pytestmark = [pytest.mark.tf, pytest.mark.cluster, pytest.mark.mlflow, pytest.mark.slow]

FILE = Path(__file__).parents[2] / "search_spaces" / "digits_folds.yaml"


@pytest.fixture(scope="module")
def sweep(ray_cluster, tmp_path_factory):
    """The sweep's result and the client of its store."""
    folder = tmp_path_factory.mktemp("sweep")
    uri = f"sqlite:///{folder}/mlflow.db"
    overrides = [
        f"storage_path={folder}",
        f"mlflow.tracking_uri={uri}",
        "budget.num_samples=2",
        "epochs=3",
        "parallelism.num_folds=2",
        "parallelism.num_devices=1",
        "resources.cpus=1",
        "max_concurrent_trials=1",
        "space.width.choice=[32]",
        "space.learning_rate.loguniform=[1.0e-3,1.0e-2]",
    ]
    return run_sweep(SweepConfig.from_yaml(FILE, overrides)), connect(uri)


def test_trials_of_folds_are_stopped_and_compared_by_their_means(sweep):
    result, _ = sweep
    best = result.best_trial

    assert {trial.outcome.value for trial in result.trials} <= {"completed", "pruned"}
    assert best.iterations == 3
    assert best.metrics["val_accuracy"] == pytest.approx(
        np.mean([best.metrics[f"fold_{i}/val_accuracy"] for i in range(2)])
    )


def test_every_fold_has_its_curve_in_mlflow(sweep):
    result, client = sweep
    (experiment,) = [e for e in client.search_experiments() if e.name == "digits"]
    runs = client.search_runs([experiment.experiment_id])
    (run,) = [
        run
        for run in runs
        if run.data.metrics.get("val_accuracy") == result.best_value
        and "mlflow.parentRunId" in run.data.tags
    ]

    for name in ("val_accuracy", "val_accuracy_std", "fold_1/val_accuracy"):
        points = client.get_metric_history(run.info.run_id, name)
        assert [point.step for point in points] == [1, 2, 3]


def test_the_exported_model_is_a_fold_of_the_best_trial(sweep, tmp_path):
    import keras

    result, _ = sweep
    model = keras.models.load_model(result.export_model(tmp_path / "best.keras"))
    x, y = DigitsMLP().load_data({}).test

    assert model.evaluate(x, y, verbose=0, return_dict=True)["accuracy"] > 0.5
    assert (result.path / "best_model" / "MLmodel").exists()
