"""A final model beside its trial's own: how long it trains, and what is said if it is worse."""

import contextlib
import math
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import ray
from typer.testing import CliRunner

from tune_tf.cli import app
from tune_tf.errors import CheckpointError, InvalidSettingsError
from tune_tf.objective import Objective
from tune_tf.outcome import Outcome
from tune_tf.parallelism import Mirrored
from tune_tf.results import TrialResult
from tune_tf.sweep.mlflow_store import MLflowStore
from tune_tf.sweep.model import best_model, retrain
from tune_tf.sweep.model.best_model import promote_best
from tune_tf.sweep.model.retrain import retrain_trial
from tune_tf.sweep.model.retrained_run import (
    RETRAINED_WORSE,
    FinalModelResult,
    ModelComparison,
    record_final_model,
)
from tune_tf.tracking.writing.run_update import PARENT

pytestmark = pytest.mark.mlflow

ACCURACY, LOSS = Objective("val_accuracy", "max"), Objective("val_loss", "min")


@pytest.mark.parametrize(
    ("objective", "final", "trial", "is_worse"),
    [
        (ACCURACY, {"accuracy": 0.747}, {"accuracy": 0.813}, True),
        (ACCURACY, {"accuracy": 0.813}, {"accuracy": 0.747}, False),
        (ACCURACY, {"accuracy": 0.5}, {"accuracy": 0.5}, False),
        (LOSS, {"loss": 0.6}, {"loss": 0.5}, True),
        (LOSS, {"loss": 0.50001}, {"loss": 0.5}, False),
        (LOSS, {"loss": math.nan}, {"loss": 0.5}, True),
        (LOSS, {"loss": 0.5}, {"loss": math.nan}, False),
        (Objective("own", "max"), {"loss": 0.6}, {"loss": 0.5}, True),
        (Objective("own", "max"), {"own": 0.6, "loss": 9.0}, {"own": 0.5, "loss": 0.5}, False),
    ],
    ids=[
        "lower accuracy",
        "higher accuracy",
        "equal",
        "higher loss",
        "round-off",
        "NaN",
        "NaN of the trial",
        "by the loss where the objective is not tested",
        "by the objective where it is",
    ],
)
def test_a_final_model_is_worse_by_the_objective_on_the_test_rows(
    objective, final, trial, is_worse
):
    final, trial = ({f"test_{name}": each[name] for name in each} for each in (final, trial))
    assert ModelComparison.of(objective, final, trial).is_worse is is_worse


def test_without_test_metrics_nothing_is_compared():
    assert ModelComparison.of(ACCURACY, {"test_loss": 0.5}, {}) is None


@pytest.fixture
def trained(sweeps, monkeypatch):
    """Return a function that retrains an ended sweep's trial without training: told, and epochs.

    The trial of three epochs keeps its second one. ``tested`` are the test metrics of the final
    model and of the trial's.
    """
    sweep = sweeps(keep="best", mlflow=None, epochs=3)
    sweep.run(0, 0.3, 0.8, 0.7, **{"kept/val_accuracy": 0.8, "kept/training_iteration": 2})
    checkpoint = sweep.checkpoint(0, 3)
    sweep.finish()
    told = SimpleNamespace(epochs=None, tested=({}, {}), sweep=sweep)

    def train(config, workload, source, on, parallelism, epochs, path, recorder):
        told.epochs = epochs
        recorder.epochs[epochs] = (0, {"loss": 0.5})
        return SimpleNamespace(checkpoint=SimpleNamespace(path=str(path / "checkpoint_000000")))

    class Export:
        def write(self, workload, config, checkpoint, path, metadata):
            return path

        def evaluate(self, workload, config, location):
            metrics = told.tested[Path(location) == checkpoint]
            if isinstance(metrics, Exception):
                raise metrics
            return metrics

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


def retrain_verb(trained, *more):
    storage_path = str(trained.sweep.path.parent)
    done = CliRunner().invoke(app, ["retrain", "small", "--storage-path", storage_path, *more])
    assert done.exit_code == 0, done.output
    return " ".join(done.stdout.split())


WORSE = (
    "It tests WORSE than trial 0: test_accuracy 0.747, the trial's own model 0.813. "
    "`tune-tf promote --retrained` refuses it without --even-if-worse."
)


@pytest.mark.parametrize(
    ("options", "told"), [((), WORSE), (("--json",), '"is_worse": true')], ids=["text", "json"]
)
def test_a_final_model_that_tests_worse_is_told(trained, options, told):
    trained.tested = {"test_accuracy": 0.747}, {"test_accuracy": 0.813}
    assert told in retrain_verb(trained, *options)


@pytest.mark.parametrize(
    "tested",
    [({"test_accuracy": 0.9}, {"test_accuracy": 0.8}), ({}, {})],
    ids=["better", "without test rows"],
)
def test_a_final_model_that_does_not_test_worse_is_told_without_a_warning(trained, tested):
    trained.tested = tested
    assert "WORSE" not in retrain_verb(trained)


@pytest.mark.parametrize("has_checkpoint", [True, False], ids=["unreadable", "removed"])
def test_a_trial_without_a_model_costs_only_the_comparison(trained, has_checkpoint, caplog):
    error = CheckpointError("another model")
    broken = ray.exceptions.RayTaskError("evaluate", "text", error).as_instanceof_cause()
    trained.tested = {"test_accuracy": 0.9}, broken
    if not has_checkpoint:
        shutil.rmtree(trained.sweep.path / "trial_00000" / "checkpoint_000003")
    result = retrain_trial(trained.sweep.path)
    assert result.comparison is None
    assert result.metrics["test_accuracy"] == 0.9
    problem = "another model" if has_checkpoint else "it has no checkpoint"
    assert f"Not compared with the model of trial 0: {problem}" in caplog.text


@pytest.fixture
def promote(empty_store, tmp_path, monkeypatch):
    """Return a function that records a final model with its test values and promotes it."""
    from mlflow.models import Model

    from tune_tf.tracking.store import connect

    shutil.copy(empty_store, tmp_path / "mlflow.db")
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    client = connect(uri)
    experiment = client.create_experiment("digits")
    ids = {key: client.create_run(experiment).info.run_id for key in (PARENT, "t0")}
    store = MLflowStore(client, uri, "digits", ids)
    trial = TrialResult("t0", 7, {"width": 8}, Outcome.COMPLETED)
    view = SimpleNamespace(sweep_id="s1", trial=lambda _: SimpleNamespace(result=trial))
    config = SimpleNamespace(mlflow=None, name="digits")
    folder = SimpleNamespace(config=config, path=tmp_path)
    for name, found in (("SweepFolder", folder), ("SweepView", view), ("MLflowStore", store)):
        opener = SimpleNamespace(open=lambda *_, found=found: found)
        monkeypatch.setattr(best_model, name, opener)

    def promote(final, trials, **options):
        path = tmp_path / "s1-retrain"
        path.mkdir(exist_ok=True)
        Model().save(str(path / "MLmodel"))
        comparison = ModelComparison.of(ACCURACY, {"test_loss": final}, {"test_loss": trials})
        result = FinalModelResult(
            "s1", trial, "train", path, path, {}, 1, Mirrored(1), comparison=comparison
        )
        recorded = record_final_model(result, store, path, {1: (0, {"loss": 0.5})}, 0)
        tags = client.get_run(recorded.mlflow_run_id).data.tags
        return recorded, tags, lambda: promote_best("s1", retrained=True, **options)

    return promote


def test_a_final_model_that_tests_worse_is_not_promoted(promote):
    recorded, tags, promoted = promote(0.6, 0.5)
    assert tags[RETRAINED_WORSE] == "test_loss 0.6, the trial's own model 0.5"
    text = (
        rf"final model of s1 \(MLflow run {recorded.mlflow_run_id}\) tests worse than trial 7: "
        r"test_loss 0\.6, .* 0\.5\. .*leave out --retrained.*--epochs.*--even-if-worse"
    )
    with pytest.raises(InvalidSettingsError, match=text):
        promoted()


@pytest.mark.parametrize(
    ("final", "options"),
    [(0.6, {"even_if_worse": True}), (0.4, {})],
    ids=["worse, and wanted", "better"],
)
def test_a_final_model_that_is_wanted_is_promoted(promote, final, options):
    recorded, _, promoted = promote(final, 0.5, **options)
    assert promoted().model_uri == recorded.model_uri
