"""Best model of a sweep in MLflow: a logged model of the parent run, and a registered version."""

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tune_tf.secrets import mask_secrets
from tune_tf.tracking.mlflow_internals import default_tracking_uri
from tune_tf.tracking.names import MAX_TAG_LENGTH, truncate
from tune_tf.tracking.writing.run_update import SWEEP_ID_TAG, TRIAL_ID_TAG

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import LoggedModel
    from mlflow.entities.model_registry import ModelVersion

BEST_MODEL_TAG = "tune_tf.best_model"
"""Tag of the parent's and the trial's run: MLflow URI of the best model."""

BEST_VERSION_TAG = "tune_tf.best_model_version"
"""Tag of both runs and the logged model: URI of the registered version, if any."""

_NAME = "best_model"
_TRIAL_RUN = "tune_tf.trial_run_id"
_CHECKPOINT = "tune_tf.checkpoint"
_VERSIONS = "mlflow.modelVersions"  # MLflow's own list of a logged model's versions
_READY = "READY"
_EXISTS = "RESOURCE_ALREADY_EXISTS"
_MISSING = "RESOURCE_DOES_NOT_EXIST"


@dataclass(frozen=True)
class BestModel:
    """Best model of a sweep: origin and metric."""

    sweep_id: str
    trial_id: str
    run_id: str  # of the trial
    checkpoint: str  # folder with the weights
    metric: str
    value: float
    params: Mapping[str, str] = field(default_factory=dict)  # MLflow's, of the trial's config

    @property
    def tags(self) -> dict[str, str]:
        """Tags with the origin of the model."""
        tags = {
            SWEEP_ID_TAG: self.sweep_id,
            TRIAL_ID_TAG: self.trial_id,
            _TRIAL_RUN: self.run_id,
            _CHECKPOINT: self.checkpoint,
            "tune_tf.metric": self.metric,
            "tune_tf.value": repr(self.value),
        }
        return {key: truncate(mask_secrets(value), MAX_TAG_LENGTH) for key, value in tags.items()}

    @property
    def description(self) -> str:
        """Description of the registered version."""
        return (
            f"Best model of sweep {self.sweep_id}: trial {self.trial_id}, "
            f"{self.metric} {self.value:.6g}."
        )

    def matches(self, tags: Mapping[str, str]) -> bool:
        """Return whether a logged model with these tags has the same weights."""
        identity = (SWEEP_ID_TAG, TRIAL_ID_TAG, _CHECKPOINT)
        return all(tags.get(key) == self.tags[key] for key in identity)


@dataclass(frozen=True)
class FinalModel:
    """Model retrained with the config of a sweep's trial, in a run of its own."""

    sweep_id: str
    trial_id: str
    run_id: str
    source_tags: Mapping[str, str] = field(default_factory=dict)  # of the logged model

    @property
    def tags(self) -> dict[str, str]:
        """Tags with the origin of the model."""
        return {
            key: value for key, value in self.source_tags.items() if not key.startswith("mlflow.")
        }

    @property
    def description(self) -> str:
        """Description of the registered version."""
        return (
            f"Final model of sweep {self.sweep_id}: the config of trial {self.trial_id}, retrained."
        )


class ModelRegistry:
    """Logger of a sweep's best model to its MLflow runs and the model registry."""

    def __init__(self, client: "MlflowClient", parent_run_id: str) -> None:
        self._client = client
        self._parent_run_id = parent_run_id

    def latest_model(self) -> "LoggedModel | None":
        """Return the latest complete logged model, if any."""
        return next((model for model in self._models() if str(model.status) == _READY), None)

    def log(self, best: BestModel, folder: Path) -> str:
        """Log the best model by :func:`log_model`, replacing earlier ones; return its URI.

        An earlier model is deleted unless it is registered, since a version may be in use.
        """
        client, run_id = self._client, self._parent_run_id
        uri = log_model(client, run_id, folder, name=_NAME, tags=best.tags, params=best.params)
        self.keep(best, uri)
        return uri

    def keep(self, best: BestModel, uri: str) -> None:
        """Link a logged model from the runs, and remove earlier ones; idempotent.

        A killed process may have logged a model without these steps, or only part of a model.
        """
        _add_output(self._client, self._parent_run_id, _model_id(uri))
        self._link_from_runs(best, BEST_MODEL_TAG, uri)
        for model in self._models():
            if model.model_id != _model_id(uri):
                self._supersede(model, best)

    def version_of(self, model: "LoggedModel", name: str) -> str | None:
        """Return the URI of a logged model's latest version under a registered name, if any."""
        numbers = [int(each["version"]) for each in _versions(model) if each["name"] == name]
        for number in sorted(numbers, reverse=True):
            with _ignored_errors(_MISSING):
                self._client.get_model_version(name, str(number))
                return f"models:/{name}/{number}"
        return None

    def set_alias(self, version_uri: str, alias: str) -> str | None:
        """Set an alias of a registered version; return the URI of its former version, if any."""
        name, _, version = version_uri.removeprefix("models:/").rpartition("/")
        before = None
        with _ignored_errors(_MISSING, "INVALID_PARAMETER_VALUE"):
            former = self._client.get_model_version_by_alias(name, alias).version
            before = f"models:/{name}/{former}"
        self._client.set_registered_model_alias(name, alias, version)
        return None if before == version_uri else before

    def register(self, best: BestModel | FinalModel, uri: str, name: str, alias: str | None) -> str:
        """Register a logged model as a new version; return the version's URI.

        The registered model is created if missing; an earlier version loses the alias.
        """
        with _ignored_errors(_EXISTS):
            self._client.create_registered_model(name)
        model_id = _model_id(uri)
        # A database store resolves the model's URI by the default tracking URI.
        with default_tracking_uri(self._client.tracking_uri):
            created = self._unlisted(name, uri) or self._client.create_model_version(
                name,
                source=uri,
                run_id=self._parent_run_id,
                tags=best.tags,
                description=best.description,
                model_id=model_id,
            )
        if alias is not None:
            self._client.set_registered_model_alias(name, alias, created.version)
        version = f"models:/{name}/{created.version}"
        self._link_from_runs(best, BEST_VERSION_TAG, version)
        versions = _versions(self._client.get_logged_model(model_id))
        versions.append({"name": name, "version": created.version})
        self._client.set_logged_model_tags(
            model_id, {BEST_VERSION_TAG: version, _VERSIONS: json.dumps(versions)}
        )
        return version

    def _models(self) -> "list[LoggedModel]":
        """Return the models that a sweep logged to the parent run, the newest first."""
        experiment_id = self._client.get_run(self._parent_run_id).info.experiment_id
        models = self._client.search_logged_models(
            [experiment_id],
            f"source_run_id = '{self._parent_run_id}'",
            order_by=[{"field_name": "creation_timestamp", "ascending": False}],
        )
        return [model for model in models if SWEEP_ID_TAG in model.tags]

    def _unlisted(self, name: str, uri: str) -> "ModelVersion | None":
        """Return a version that a killed process created without listing it in the model's tags."""
        versions = _versions(self._client.get_logged_model(_model_id(uri)))
        listed = {str(each["version"]) for each in versions if each["name"] == name}
        for version in self._client.search_model_versions(f"run_id = '{self._parent_run_id}'"):
            is_same = version.name == name and version.source == uri
            if is_same and str(version.version) not in listed:
                return version
        return None

    def _supersede(self, before: "LoggedModel", best: BestModel) -> None:
        trial_run_id = before.tags.get(_TRIAL_RUN)
        if trial_run_id is not None and trial_run_id != best.run_id:
            tags = self._client.get_run(trial_run_id).data.tags
            for key in (BEST_MODEL_TAG, BEST_VERSION_TAG):
                if key in tags:
                    self._client.delete_tag(trial_run_id, key)
        if BEST_VERSION_TAG not in before.tags and _VERSIONS not in before.tags:
            self._client.delete_logged_model(before.model_id)

    def _link_from_runs(self, best: BestModel | FinalModel, key: str, uri: str) -> None:
        for run_id in (best.run_id, self._parent_run_id):
            self._client.set_tag(run_id, key, uri)


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

    MLflow's ids of run and model are written into the folder.
    """
    model = client.create_logged_model(
        client.get_run(run_id).info.experiment_id,
        name=name,
        source_run_id=run_id,
        tags=dict(tags),
        params=dict(params),
        model_type="keras",
    )
    try:
        _upload(client, run_id, model, folder)
    except BaseException:
        with contextlib.suppress(Exception):  # the first error is raised
            client.finalize_logged_model(model.model_id, "FAILED")
            client.delete_logged_model(model.model_id)
        raise
    return f"models:/{model.model_id}"


@contextlib.contextmanager
def _ignored_errors(*codes: str) -> Iterator[None]:
    """Ignore MLflow's errors with certain codes."""
    from mlflow.exceptions import MlflowException

    try:
        yield
    except MlflowException as error:
        if error.error_code not in codes:
            raise


def _add_output(client: "MlflowClient", run_id: str, model_id: str) -> None:
    """Add a logged model to the outputs of a run, unless listed."""
    from mlflow.entities import LoggedModelOutput

    outputs = client.get_run(run_id).outputs
    if model_id not in [each.model_id for each in (outputs.model_outputs if outputs else ())]:
        client.log_outputs(run_id, [LoggedModelOutput(model_id, step=0)])


def _upload(client: "MlflowClient", run_id: str, model: "LoggedModel", folder: Path) -> None:
    from mlflow.models import Model

    saved = Model.load(str(folder))
    saved.run_id, saved.model_id = run_id, model.model_id
    saved.model_uuid, saved.artifact_path = model.model_id, model.artifact_location
    saved.save(str(folder / "MLmodel"))
    client.log_model_artifacts(model.model_id, str(folder))
    client.finalize_logged_model(model.model_id, _READY)
    _add_output(client, run_id, model.model_id)


def _versions(model: "LoggedModel") -> list[dict[str, Any]]:
    versions: list[dict[str, Any]] = json.loads(model.tags.get(_VERSIONS, "[]"))
    return versions


def _model_id(uri: str) -> str:
    return uri.rpartition("/")[2]
