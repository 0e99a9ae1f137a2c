"""Aliases of registered versions, and the runs of a sweep that are looked for."""

import pytest

from tune_tf.tracking.registry import BestModel, FinalModel, ModelRegistry
from tune_tf.tracking.runs import find_run_ids
from tune_tf.tracking.writing.run_update import PARENT, SWEEP_ID_TAG, TRIAL_ID_TAG

pytestmark = pytest.mark.mlflow


@pytest.fixture
def registered(client, tmp_path):
    """Return a function that logs and registers a sweep's model: its runs, model and version."""
    from mlflow.models import Model

    experiment = client.create_experiment("digits")

    def registered(sweep_id, name="digits"):
        parent, trial = (client.create_run(experiment).info.run_id for _ in range(2))
        best = BestModel(sweep_id, "t1", trial, "/c/1", "val_loss", 0.5)
        folder = tmp_path / sweep_id
        folder.mkdir()
        Model().save(str(folder / "MLmodel"))
        runs = ModelRegistry(client, parent)
        uri = runs.log(best, folder)
        return runs, best, uri, runs.register(best, uri, name, None)

    return registered


def test_an_alias_goes_from_one_version_to_another(client, registered):
    first, _, _, first_uri = registered("s1")
    second, _, second_model, second_uri = registered("s2")

    assert first.set_alias(first_uri, "champion") is None
    assert second.set_alias(second_uri, "champion") == first_uri == "models:/digits/1"
    assert client.get_model_version_by_alias("digits", "champion").source == second_model


def test_a_version_that_has_the_alias_keeps_it(client, registered):
    runs, _, _, uri = registered("s1")
    runs.set_alias(uri, "champion")

    assert runs.set_alias(uri, "champion") is None


def test_a_model_has_a_version_under_each_name(registered):
    runs, best, uri, version = registered("s1")
    other = runs.register(best, uri, "other", None)
    logged = runs.latest_model()

    assert runs.version_of(logged, "digits") == version
    assert runs.version_of(logged, "other") == other
    assert runs.version_of(logged, "third") is None


def test_a_final_model_is_registered_as_what_it_is(client, registered):
    runs, best, uri, _ = registered("s1")
    final = FinalModel("s1", "t1", best.run_id, {SWEEP_ID_TAG: "s1", "mlflow.x": "y"})
    version = runs.register(final, uri, "digits", None)

    made = client.get_model_version("digits", version.rpartition("/")[2])
    assert made.description == "Final model of sweep s1: the config of trial t1, retrained."
    assert made.tags == {SWEEP_ID_TAG: "s1"}


def test_a_version_that_was_deleted_is_none(client, registered):
    runs, _, _, _ = registered("s1")
    client.delete_model_version("digits", "1")

    assert runs.version_of(runs.latest_model(), "digits") is None


def test_the_runs_of_a_sweep_are_found_by_their_trials(client):
    experiment = client.create_experiment("digits")
    tags = [
        {SWEEP_ID_TAG: "s1"},
        {SWEEP_ID_TAG: "s1", TRIAL_ID_TAG: "t1"},
        {SWEEP_ID_TAG: "s2", TRIAL_ID_TAG: "t1"},
    ]
    parent, trial, _ = (client.create_run(experiment, tags=each).info.run_id for each in tags)

    assert find_run_ids(client, "digits", "s1") == {PARENT: parent, "t1": trial}


def test_an_experiment_that_is_not_there_has_no_runs(client):
    assert find_run_ids(client, "digits", "s1") == {}
