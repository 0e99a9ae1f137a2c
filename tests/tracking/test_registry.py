"""The best model in MLflow: logged once, replaced by a better one, registered on request."""

import json

import pytest

from tune_tf.tracking.registry import BEST_MODEL_TAG, BEST_VERSION_TAG, BestModel, ModelRegistry

pytestmark = pytest.mark.mlflow


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
def runs(client, parent):
    return ModelRegistry(client, parent)


@pytest.fixture
def best_of(client, experiment):
    """Return a function to a trial's model, as the best one, with a run of the trial's own."""

    def best_of(trial_id, value=0.5, **changes):
        run_id = client.create_run(experiment).info.run_id
        made = {"checkpoint": f"/sweeps/s1/{trial_id}/checkpoint_000001", "params": {"width": "8"}}
        return BestModel("s1", trial_id, run_id, metric="val_loss", value=value, **made | changes)

    return best_of


@pytest.fixture
def folder(tmp_path):
    """A model's folder, as far as the store looks into it."""
    from mlflow.models import Model

    path = tmp_path / "best_model"
    path.mkdir()
    (path / "weights").write_text("w")
    Model().save(str(path / "MLmodel"))
    return path


def files_of(client, uri):
    model = client.get_logged_model(uri.rpartition("/")[2])
    return sorted(file.path for file in client.list_logged_model_artifacts(model.model_id))


def test_the_model_is_logged_with_where_it_comes_from(runs, client, parent, best_of, folder):
    best = best_of("t1", 0.25)
    uri = runs.log(best, folder)
    model = client.get_logged_model(uri.rpartition("/")[2])

    assert str(model.status) == "READY"
    assert model.source_run_id == parent
    assert model.params == {"width": "8"}
    assert model.tags["tune_tf.sweep_id"] == "s1"
    assert model.tags["tune_tf.trial_id"] == "t1"
    assert model.tags["tune_tf.trial_run_id"] == best.run_id
    assert model.tags["tune_tf.checkpoint"] == best.checkpoint
    assert (model.tags["tune_tf.metric"], model.tags["tune_tf.value"]) == ("val_loss", "0.25")
    assert files_of(client, uri) == ["MLmodel", "weights"]


def test_both_runs_name_the_model_and_keep_their_states(runs, client, parent, best_of, folder):
    best = best_of("t1")
    uri = runs.log(best, folder)

    for run_id in (parent, best.run_id):
        assert client.get_run(run_id).data.tags[BEST_MODEL_TAG] == uri
    info = client.get_run(parent).info
    assert (info.status, info.end_time) == ("FINISHED", 1234)
    outputs = client.get_run(parent).outputs.model_outputs
    assert [f"models:/{output.model_id}" for output in outputs] == [uri]


def test_the_folder_knows_the_ids_that_mlflow_gave(runs, parent, best_of, folder):
    from mlflow.models import Model

    uri = runs.log(best_of("t1"), folder)
    about = Model.load(str(folder))

    assert (about.run_id, f"models:/{about.model_id}") == (parent, uri)


def test_the_same_weights_are_known_again(runs, best_of, folder):
    assert runs.latest_model() is None
    runs.log(best_of("t1"), folder)
    tags = runs.latest_model().tags

    assert best_of("t1").matches(tags)
    assert not best_of("t2").matches(tags)
    assert not best_of("t1", checkpoint="/sweeps/s1/t1/checkpoint_000002").matches(tags)


def test_a_model_that_the_user_deleted_is_not_there(runs, client, best_of, folder):
    uri = runs.log(best_of("t1"), folder)
    client.delete_logged_model(uri.rpartition("/")[2])

    assert runs.latest_model() is None


def test_a_better_one_takes_its_place(runs, client, parent, experiment, best_of, folder):
    first, second = best_of("t1"), best_of("t2")
    runs.log(first, folder)
    uri = runs.log(second, folder)

    assert [f"models:/{model.model_id}" for model in client.search_logged_models([experiment])] == [
        uri
    ]
    assert client.get_run(parent).data.tags[BEST_MODEL_TAG] == uri
    assert client.get_run(second.run_id).data.tags[BEST_MODEL_TAG] == uri
    assert BEST_MODEL_TAG not in client.get_run(first.run_id).data.tags


def test_the_one_before_stays_if_it_is_registered(runs, client, experiment, best_of, folder):
    first, second = best_of("t1"), best_of("t2")
    old = runs.register(first, runs.log(first, folder), "digits", "champion")
    new = runs.register(second, runs.log(second, folder), "digits", "champion")

    assert (old, new) == ("models:/digits/1", "models:/digits/2")
    assert len(client.search_logged_models([experiment])) == 2
    assert client.get_model_version_by_alias("digits", "champion").version == 2
    assert BEST_VERSION_TAG not in client.get_run(first.run_id).data.tags


def test_a_version_names_sweep_trial_checkpoint_and_value(runs, client, parent, best_of, folder):
    best = best_of("t1", 0.25)
    uri = runs.log(best, folder)
    version_uri = runs.register(best, uri, "digits", "champion")
    version = client.get_model_version_by_alias("digits", "champion")

    assert version_uri == f"models:/digits/{version.version}"
    assert (version.run_id, version.source) == (parent, uri)
    assert version.tags == best.tags
    assert version.description == "Best model of sweep s1: trial t1, val_loss 0.25."
    for run_id in (parent, best.run_id):
        assert client.get_run(run_id).data.tags[BEST_VERSION_TAG] == version_uri


def test_a_logged_model_names_its_version(runs, client, best_of, folder):
    best = best_of("t1")
    uri = runs.log(best, folder)
    assert runs.version_of(runs.latest_model(), "digits") is None
    version = runs.register(best, uri, "digits", None)
    model = runs.latest_model()

    assert runs.version_of(model, "digits") == version
    assert runs.version_of(model, "others") is None
    assert json.loads(model.tags["mlflow.modelVersions"]) == [{"name": "digits", "version": 1}]
    assert client.get_registered_model("digits").aliases == {}


def test_a_model_is_registered_from_any_working_directory(
    runs, client, best_of, folder, tmp_path, monkeypatch
):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    best = best_of("t1")

    assert runs.register(best, runs.log(best, folder), "digits", "champion") == "models:/digits/1"
    assert not list((tmp_path / "elsewhere").iterdir())


class KilledError(BaseException):
    """Stands for the end of the process."""


class DyingClient:
    """Does what a client does until one function is called, and nothing from there on."""

    def __init__(self, client, name, *, after):
        self.tracking_uri = client.tracking_uri
        self._client, self._name, self._after, self._dead = client, name, after, False

    def __getattr__(self, name):
        def call(*args, **options):
            strikes = name == self._name
            self._dead = self._dead or (strikes and not self._after)
            if self._dead:
                raise KilledError
            result = getattr(self._client, name)(*args, **options)
            self._dead = strikes
            if self._dead:
                raise KilledError
            return result

        return call


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    "name",
    [
        "create_logged_model",
        "log_model_artifacts",
        "log_outputs",
        "finalize_logged_model",
        "set_tag",
        "create_model_version",
        "set_registered_model_alias",
        "set_logged_model_tags",
    ],
)
def test_a_model_is_logged_and_registered_once_despite_kills(
    client, parent, experiment, best_of, folder, name, after
):
    def settle(client):
        runs = ModelRegistry(client, parent)
        known = runs.latest_model()
        uri = runs.log(best, folder) if known is None else f"models:/{known.model_id}"
        runs.keep(best, uri)
        return uri, runs.version_of(runs.latest_model(), "digits") or runs.register(
            best, uri, "digits", "champion"
        )

    best = best_of("t1")
    with pytest.raises(KilledError):
        settle(DyingClient(client, name, after=after))
    uri, version_uri = settle(client)

    (model,) = client.search_logged_models([experiment])
    assert str(model.status) == "READY"
    (version,) = client.search_model_versions("name='digits'")
    assert version.source == uri == f"models:/{model.model_id}"
    assert client.get_model_version_by_alias("digits", "champion").version == version.version
    assert ModelRegistry(client, parent).version_of(model, "digits") == version_uri
    for run_id in (parent, best.run_id):
        tags = client.get_run(run_id).data.tags
        assert (tags[BEST_MODEL_TAG], tags[BEST_VERSION_TAG]) == (uri, version_uri)
    assert len(client.get_run(parent).outputs.model_outputs) == 1


def test_what_could_not_be_uploaded_is_not_there(runs, client, experiment, best_of, folder):
    (folder / "MLmodel").unlink()
    with pytest.raises(Exception, match="MLmodel"):
        runs.log(best_of("t1"), folder)

    assert runs.latest_model() is None
    assert not client.search_logged_models([experiment])
