"""The best model at the end of a sweep, whatever the store and the model do."""

import logging
import shutil
from types import SimpleNamespace
from unittest.mock import create_autospec

import pytest

from tune_tf.config import MLflowSettings, SweepConfig
from tune_tf.outcome import Outcome
from tune_tf.record import Record
from tune_tf.results import SweepResult, TrialResult
from tune_tf.sweep.model import best_model
from tune_tf.sweep.model.best_model import evaluate_best, log_best_model
from tune_tf.sweep.model.export_process import ModelExportProcess

CONFIG = {
    "name": "digits",
    "workload": "tune_tf.workloads.digits:DigitsMLP",
    "objective": {"metric": "val_loss", "mode": "min"},
    "space": {"width": {"choice": [8, 16]}},
    "budget": {"num_samples": 2},
}


@pytest.fixture
def store(empty_store, tmp_path, monkeypatch):
    """A fresh store with the runs of a sweep of two trials."""
    from tune_tf.tracking.store import connect

    monkeypatch.chdir(tmp_path)
    shutil.copy(empty_store, tmp_path / "mlflow.db")
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    client = connect(uri)
    experiment = client.create_experiment("digits")
    ids = {key: client.create_run(experiment).info.run_id for key in ("", "t0", "t1")}
    return SimpleNamespace(uri=uri, client=client, experiment=experiment, ids=ids)


@pytest.fixture
def writer():
    """A writer of folders that MLflow takes, without a model in them."""

    def write(workload, config, checkpoint, path, metadata):
        from mlflow.models import Model

        path.mkdir(parents=True, exist_ok=True)
        Model(metadata=metadata).save(str(path / "MLmodel"))
        return path

    writer = create_autospec(ModelExportProcess, instance=True)
    writer.write.side_effect = write
    return writer


@pytest.fixture
def result_of(store, tmp_path):
    """Return a function from the trials' losses to the sweep's result."""

    def result_of(*losses, checkpoints=True):
        trials = [
            TrialResult(
                f"t{number}",
                number,
                {"width": 8},
                Outcome.COMPLETED,
                metrics={} if loss is None else {"val_loss": loss},
                checkpoint=tmp_path / f"t{number}" / "checkpoint_000000" if checkpoints else None,
            )
            for number, loss in enumerate(losses)
        ]
        return SweepResult(
            "s1",
            tmp_path / "s1",
            SweepConfig.from_dict(CONFIG),
            tmp_path,
            tuple(trials),
            store.ids[""],
        )

    return result_of


@pytest.fixture
def log(store, writer):
    """Log the best model of a result."""

    def log(result, **settings):
        return log_best_model(
            result,
            MLflowSettings(**settings),
            writer,
            tracking_uri=store.uri,
            run_ids=store.ids,
        )

    return log


def models_in(store):
    return [
        f"models:/{model.model_id}"
        for model in store.client.search_logged_models([store.experiment])
    ]


def test_the_model_of_the_best_trial_is_logged_once(log, result_of, store, writer, tmp_path):
    uri = log(result_of(0.5, 0.25))

    assert log(result_of(0.5, 0.25)) == uri
    assert [uri] == models_in(store)
    writer.write.assert_called_once()
    assert writer.write.call_args.args[2:4] == (
        tmp_path / "t1" / "checkpoint_000000",
        tmp_path / "s1" / "best_model",
    )
    model = store.client.get_logged_model(uri.rpartition("/")[2])
    assert model.params == {"width": "8"}
    expected = {
        "tune_tf.sweep_id": "s1",
        "tune_tf.trial_id": "t1",
        "tune_tf.trial_run_id": store.ids["t1"],
        "tune_tf.checkpoint": str(tmp_path / "t1" / "checkpoint_000000"),
        "tune_tf.metric": "val_loss",
        "tune_tf.value": "0.25",
    }
    assert model.tags.items() >= expected.items()
    for trial_id, tagged in {"": uri, "t1": uri, "t0": None}.items():
        tags = store.client.get_run(store.ids[trial_id]).data.tags
        assert tags.get("tune_tf.best_model") == tagged


def test_a_logged_model_is_registered_when_that_is_asked_for_later(log, result_of, store, writer):
    log(result_of(0.5, 0.25))
    for _ in range(2):
        uri = log(result_of(0.5, 0.25), register_best="digits", best_alias="best")

    (version,) = store.client.search_model_versions("name='digits'")
    assert store.client.get_model_version_by_alias("digits", "best").source == uri
    assert version.tags["tune_tf.trial_id"] == "t1"
    tags = store.client.get_run(store.ids["t1"]).data.tags
    assert tags["tune_tf.best_model_version"] == "models:/digits/1"
    assert writer.write.call_count == 1


class Kill(BaseException):
    """Ends a driver as a kill does: nothing is cleaned up."""


@pytest.mark.parametrize("name", ["set_tag", "register", "set_registered_model_alias"])
def test_a_driver_that_is_killed_on_the_way_is_followed_by_one_with_the_same_model(
    log, result_of, store, monkeypatch, name
):
    from mlflow import MlflowClient

    owner = best_model if name == "register" else MlflowClient
    work, asked = getattr(owner, name), {"register_best": "digits", "best_alias": "best"}

    def kill_after(*arguments):
        work(*arguments)
        raise Kill

    monkeypatch.setattr(owner, name, kill_after)
    with pytest.raises(Kill):
        log(result_of(0.5, 0.25), **asked)
    monkeypatch.setattr(owner, name, work)
    uri = log(result_of(0.5, 0.25), **asked)

    assert models_in(store) == [uri]
    (version,) = store.client.search_model_versions("name='digits'")
    assert store.client.get_model_version_by_alias("digits", "best").version == version.version
    for run_id in (store.ids[""], store.ids["t1"]):
        tags = store.client.get_run(run_id).data.tags
        assert tags["tune_tf.best_model"] == version.source == uri
        assert tags["tune_tf.best_model_version"] == "models:/digits/1"


def refuse(*arguments, **options):
    raise PermissionError("not yours, https://me:hunter22@mlflow.test")


@pytest.mark.parametrize(
    ("broken", "expected"),
    [
        ("writer", "was not logged to MLflow: get_config() of Mine is missing"),
        ("interrupt", "was not logged to MLflow: it was interrupted"),
        ("register", "is logged as models:/m-"),
        ("register", ", but not registered: not yours, "),
        ("connect", "was not logged to MLflow: not yours, "),
        ("checkpoint", "trial t0 has no checkpoint"),
        ("runs", "MLflow does not have the runs of this sweep yet"),
    ],
)
def test_what_goes_wrong_is_a_warning_that_says_what_to_do(
    result_of, store, writer, monkeypatch, caplog, broken, expected
):
    if broken in ("register", "connect"):
        monkeypatch.setattr(best_model, broken, refuse)
    if broken in ("writer", "interrupt"):
        errors = {"writer": TypeError("get_config() of Mine is missing")}
        writer.write.side_effect = errors.get(broken, KeyboardInterrupt)
    uri = log_best_model(
        result_of(0.5, checkpoints=broken != "checkpoint"),
        MLflowSettings(register_best="digits"),
        writer,
        tracking_uri=store.uri,
        run_ids={} if broken == "runs" else store.ids,
    )

    assert uri is None
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert expected in record.message
    assert "result.export_model('best.keras')" in record.message
    assert "hunter22" not in caplog.text
    assert len(models_in(store)) == (broken == "register")


@pytest.fixture
def evaluate(writer, monkeypatch, tmp_path):
    """Evaluate the best model of a result; return the recorded test metrics."""
    monkeypatch.setattr(best_model, "import_workload", lambda *_: None)

    def evaluate(result):
        with Record(tmp_path) as record:
            record.record_creation("t1", 1, {}, name="trial_00001", tag="2")
            record.record_end("t1", Outcome.COMPLETED)
            evaluate_best(result, writer, record)
            return record.history.trials["t1"].test_metrics

    return evaluate


def test_the_best_trial_is_evaluated_on_the_test_rows(evaluate, result_of, writer, tmp_path):
    writer.evaluate.return_value = {"test_loss": 0.5}
    result = result_of(0.5, 0.25)

    assert evaluate(result) == {"test_loss": 0.5}
    writer.evaluate.assert_called_once_with(None, {"width": 8}, result.best_checkpoint)


@pytest.mark.parametrize("error", [ValueError("rows of another shape"), KeyboardInterrupt()])
def test_test_rows_that_cannot_be_evaluated_are_told(evaluate, result_of, writer, error, caplog):
    writer.evaluate.side_effect = error

    assert evaluate(result_of(0.5, 0.25)) == {}
    text = str(error) or "KeyboardInterrupt"
    assert f"not evaluated on the test rows: {text}" in caplog.text
