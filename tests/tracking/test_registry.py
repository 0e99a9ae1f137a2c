"""Models of a sweep in MLflow: logged to a run, registered once, named by an alias."""

import pytest

from tune_tf.tracking.registry import BEST_MODEL_TAG, log_model, logged_model, register
from tune_tf.tracking.tags import SWEEP_ID_TAG, TRIAL_ID_TAG

pytestmark = pytest.mark.mlflow
TAGS = {SWEEP_ID_TAG: "s1", TRIAL_ID_TAG: "t1"}


@pytest.fixture
def experiment(client):
    return client.create_experiment("digits")


@pytest.fixture
def parent(client, experiment):
    """The sweep's own run, which has ended."""
    run_id = client.create_run(experiment).info.run_id
    client.set_terminated(run_id, "FINISHED", 1234)
    return run_id


@pytest.fixture
def folder(tmp_path):
    """A model's folder, as far as the store looks into it."""
    from mlflow.models import Model

    path = tmp_path / "best_model"
    path.mkdir()
    (path / "weights").write_text("w")
    Model().save(str(path / "MLmodel"))
    return path


@pytest.fixture
def log(client, parent, folder):
    """Return a function that logs a model to the sweep's run."""
    return lambda: log_model(client, parent, folder, name="best", tags=TAGS, params={"width": "8"})


def test_a_model_is_logged_to_a_run_that_keeps_its_state(client, parent, folder, log):
    from mlflow.models import Model

    assert logged_model(client, parent) is None
    uri = log()
    model, run = logged_model(client, parent), client.get_run(parent)

    assert uri == f"models:/{model.model_id}" == run.data.tags[BEST_MODEL_TAG]
    assert (str(model.status), model.source_run_id) == ("READY", parent)
    assert (model.params, model.tags.items() >= TAGS.items()) == ({"width": "8"}, True)
    files = client.list_logged_model_artifacts(model.model_id)
    assert sorted(file.path for file in files) == ["MLmodel", "weights"]
    about = Model.load(str(folder))
    assert (about.run_id, about.model_id) == (parent, model.model_id)
    assert (run.info.status, run.info.end_time) == ("FINISHED", 1234)
    assert [output.model_id for output in run.outputs.model_outputs] == [model.model_id]


def test_the_model_of_a_run_is_the_last_one_unless_it_was_deleted(client, parent, log):
    log()
    uri = log()
    assert f"models:/{logged_model(client, parent).model_id}" == uri
    client.delete_logged_model(uri.rpartition("/")[2])
    assert logged_model(client, parent) is None


def test_a_model_is_registered_once_under_each_name(
    client, parent, log, tmp_path, monkeypatch, capsys
):
    uri = log()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    version_uri = register(client, uri, "digits", TAGS)

    assert version_uri == register(client, uri, "digits", TAGS) == "models:/digits/1"
    assert register(client, uri, "other", TAGS) == "models:/other/1"
    (version,) = client.search_model_versions("name='digits'")
    assert (version.run_id, version.source, version.tags) == (parent, uri, TAGS)
    assert not list((tmp_path / "elsewhere").iterdir())  # no other store
    assert capsys.readouterr() == ("", "")
    client.delete_model_version("digits", "1")
    assert register(client, uri, "digits", TAGS) == "models:/digits/2"


def test_an_alias_goes_from_one_version_to_another(client, log):
    for number in ("1", "2"):
        register(client, log(), "digits", TAGS, "champion")
        assert str(client.get_model_version_by_alias("digits", "champion").version) == number
