"""Models of a sweep in MLflow: logged to a run, registered as a version, named by an alias."""

import contextlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tune_tf.tracking.mlflow_internals import default_tracking_uri

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import LoggedModel

BEST_MODEL_TAG = "tune_tf.best_model"
"""Tag of the sweep's and the trial's run: MLflow URI of the model."""

BEST_VERSION_TAG = "tune_tf.best_model_version"
"""Tag of both runs: URI of the registered version, if any."""


def log_model(
    client: "MlflowClient",
    run_id: str,
    folder: Path,
    *,
    name: str,
    tags: Mapping[str, str],
    params: Mapping[str, str],
) -> str:
    """Log the output folder of ``mlflow.keras.save_model`` to a run; return the model's URI.

    ``mlflow.keras.log_model`` would do so only for a model in this process, and for an active run,
    whose status it changes.
    """
    from mlflow.entities import LoggedModelOutput
    from mlflow.models import Model

    model = client.create_logged_model(
        client.get_run(run_id).info.experiment_id,
        name=name,
        source_run_id=run_id,
        tags=dict(tags),
        params=dict(params),
        model_type="keras",
    )
    try:
        saved = Model.load(str(folder))
        saved.run_id, saved.model_id = run_id, model.model_id
        saved.model_uuid, saved.artifact_path = model.model_id, model.artifact_location
        saved.save(str(folder / "MLmodel"))
        client.log_model_artifacts(model.model_id, str(folder))
        client.finalize_logged_model(model.model_id, "READY")
        client.log_outputs(run_id, [LoggedModelOutput(model.model_id, step=0)])
    except BaseException:
        with contextlib.suppress(Exception):  # the first error is raised
            client.finalize_logged_model(model.model_id, "FAILED")
            client.delete_logged_model(model.model_id)
        raise
    uri = f"models:/{model.model_id}"
    client.set_tag(run_id, BEST_MODEL_TAG, uri)
    return uri


def logged_model(client: "MlflowClient", run_id: str) -> "LoggedModel | None":
    """Return the model that :func:`log_model` logged last to a run; None if it is not there."""
    from mlflow.exceptions import MlflowException

    uri = client.get_run(run_id).data.tags.get(BEST_MODEL_TAG)
    if uri is None:
        return None
    try:
        return client.get_logged_model(uri.rpartition("/")[2])
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return None


def register(
    client: "MlflowClient", uri: str, name: str, tags: Mapping[str, str], alias: str | None = None
) -> str:
    """Return the URI of a logged model's version under a name, which is made unless it is there.

    An alias goes to it from any other version.
    """
    import mlflow

    versions = client.search_model_versions(f"name = '{name}'")
    numbers = [int(version.version) for version in versions if version.source == uri]
    if not numbers:
        # MLflow prints that it did so.
        with (
            default_tracking_uri(client.tracking_uri),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            numbers = [int(mlflow.register_model(uri, name, tags=dict(tags)).version)]
    if alias is not None:
        client.set_registered_model_alias(name, alias, str(max(numbers)))
    return f"models:/{name}/{max(numbers)}"
