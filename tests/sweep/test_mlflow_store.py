"""The MLflow store of a sweep that has run."""

import shutil

import pytest

from tune_tf import SweepConfig
from tune_tf.errors import InvalidSettingsError, StoreUnavailableError
from tune_tf.sweep import mlflow_store as sweep_store
from tune_tf.sweep.mlflow_store import MLflowStore, sync_sweep
from tune_tf.sweep_folder import SweepFolder


@pytest.fixture
def folder(empty_store, tmp_path, monkeypatch):
    """Return a function that makes the folder of a sweep, beside an empty store."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(empty_store, tmp_path / "mlflow.db")

    def folder(**mlflow):
        config = SweepConfig.from_dict(
            {
                "name": "digits",
                "workload": "tune_tf.workloads.digits:DigitsMLP",
                "objective": {"metric": "val_loss", "mode": "min"},
                "space": {"width": 8},
                "budget": {"num_samples": 1},
                "mlflow": mlflow or None,
            }
        )
        return SweepFolder.create(config, tmp_path)

    return folder


def test_the_runs_of_a_sweep_are_found(folder, tmp_path):
    from tune_tf.tracking.store import connect

    sweep = folder(experiment_name="mine")
    client = connect(f"sqlite:///{tmp_path}/mlflow.db")
    tags = {"tune_tf.sweep_id": sweep.sweep_id}
    parent = client.create_run(client.create_experiment("mine"), tags=tags).info.run_id

    store = MLflowStore.open(sweep)
    assert (store.parent_run_id, store.experiment_name) == (parent, "mine")


def test_a_sweep_that_is_not_tracked_is_told(folder):
    sweep = folder()
    for connect in (MLflowStore.open, lambda sweep: sync_sweep(sweep.path)):
        with pytest.raises(InvalidSettingsError, match="its settings have no mlflow section"):
            connect(sweep)


def test_a_store_without_the_runs_is_told_with_what_to_do(folder):
    sweep = folder(experiment_name="mine")
    with pytest.raises(
        StoreUnavailableError, match=f"no runs of digits-.*tune-tf sync {sweep.path}"
    ):
        MLflowStore.open(sweep)


def test_a_store_that_does_not_answer_is_told_without_its_password(folder, monkeypatch):
    uri = "https://me:hunter22@mlflow.test"

    def refuse(*arguments):
        raise ConnectionError(f"trying\ncannot reach {uri}/api")

    monkeypatch.setattr(sweep_store, "find_run_ids", refuse)
    with pytest.raises(
        StoreUnavailableError, match="does not answer: trying cannot reach the store/api"
    ) as told:
        MLflowStore.open(folder(tracking_uri=uri))
    assert "hunter22" not in str(told.value)
