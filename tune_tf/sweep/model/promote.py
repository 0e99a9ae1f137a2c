"""Promotion of a sweep's best or final model by an alias in MLflow's model registry."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

from tune_tf.config import MLflowSettings
from tune_tf.errors import InvalidSettingsError, StoreUnavailableError
from tune_tf.inspection.sweep_view import SweepView
from tune_tf.results import TrialResult
from tune_tf.secrets import mask_secrets
from tune_tf.sweep.cluster import cluster
from tune_tf.sweep.mlflow_store import MLflowStore
from tune_tf.sweep.model.best_model import logged_best
from tune_tf.sweep.model.export_process import ModelExportProcess
from tune_tf.sweep.model.retrained_run import RETRAINED
from tune_tf.sweep_folder import SweepFolder
from tune_tf.tracking.registry import BestModelRuns, FinalModel
from tune_tf.tracking.writing.run_update import TRIAL_ID_TAG


@dataclass(frozen=True)
class Promotion:
    """Registered model version that received an alias.

    Args:
        uri: URI for ``mlflow.keras.load_model``: ``models:/name@alias``.
        version_uri: URI with the version number: ``models:/name/3``.
        model_uri: URI of the logged model.
        before: Previous version with the alias; None if none or this one.
        trial: The best trial, or the one whose config was retrained.
    """

    uri: str
    version_uri: str
    model_uri: str
    before: str | None
    sweep_id: str
    trial: TrialResult


def promote_best(
    sweep: str | Path,
    alias: str = "champion",
    *,
    name: str | None = None,
    retrained: bool = False,
    storage_path: str | Path = "sweeps",
) -> Promotion:
    """Give an alias to the registered version of a sweep's best or final model.

    The model is logged and registered first if necessary, never twice.

    Args:
        sweep: Folder, id or name of the sweep; a name selects its latest sweep.
        alias: Alias; another version of the model that has it loses it.
        name: The registered model; by default ``mlflow.register_best`` of the sweep file, or the
            sweep's name.
        retrained: Promote the latest model of ``retrain`` instead of the best one.
        storage_path: Folder that is searched for ids and names.

    Raises:
        UnknownSweepError: There is no such sweep.
        UnknownMetricError: No feasible trial reported a finite value.
        CheckpointError: The best trial has no checkpoint to log a model from.
        InvalidSettingsError: The sweep is not tracked, MLflow rejects the name or alias, or no
            final model exists.
        StoreUnavailableError: MLflow does not answer, or has no runs of the sweep.
    """
    folder = SweepFolder.open(sweep, storage_path)
    given = folder.config.mlflow
    name = name or (given and given.register_best) or folder.config.name
    settings = MLflowSettings(register_best=name, best_alias=alias)
    view = SweepView.open(folder.path)
    if retrained:
        return _promote_final(view, MLflowStore.open(folder), name, alias)
    result = view.result
    trial = result.best_trial
    store = MLflowStore.open(folder)
    result = replace(result, mlflow_run_id=store.parent_run_id)
    with _LazyExportProcess() as writer, _clear_mlflow_errors(store):
        best, logged, runs = logged_best(
            result, settings, writer, store.tracking_uri, store.run_ids
        )
        version_uri = logged.version_uri or runs.register(best, logged.uri, name, None)
        before = runs.set_alias(version_uri, alias)
    return Promotion(
        f"models:/{name}@{alias}", version_uri, logged.uri, before, result.sweep_id, trial
    )


def _promote_final(view: SweepView, store: MLflowStore, name: str, alias: str) -> Promotion:
    """Give an alias to the latest retrained model."""
    with _clear_mlflow_errors(store):
        run_id = store.client.get_run(store.parent_run_id).data.tags.get(RETRAINED)
        runs = BestModelRuns(store.client, run_id) if run_id else None
        logged = runs.latest_model() if runs else None
        if run_id is None or runs is None or logged is None:
            raise InvalidSettingsError(
                [f"{view.sweep_id} has no final model in MLflow: train one with `tune-tf retrain`"]
            )
        trial = view.trial(logged.tags[TRIAL_ID_TAG]).result
        final = FinalModel(view.sweep_id, trial.trial_id, run_id, logged.tags)
        uri = f"models:/{logged.model_id}"
        version_uri = runs.version_of(logged, name) or runs.register(final, uri, name, None)
        before = runs.set_alias(version_uri, alias)
    return Promotion(f"models:/{name}@{alias}", version_uri, uri, before, view.sweep_id, trial)


class _LazyExportProcess(ModelExportProcess):
    """Export process that starts a Ray cluster only if a model must be written."""

    def __init__(self) -> None:
        super().__init__()
        self._cluster = contextlib.ExitStack()

    def start(self) -> None:
        if self._actor is None:
            self._cluster.enter_context(cluster())
        super().start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._cluster:
            super().__exit__(kind, error, traceback)


@contextlib.contextmanager
def _clear_mlflow_errors(store: MLflowStore) -> Iterator[None]:
    """Raise MLflow's errors as StoreUnavailableError, without passwords."""
    from mlflow.exceptions import MlflowException

    try:
        yield
    except MlflowException as error:
        text = mask_secrets(str(error).replace(store.tracking_uri, "the store")).strip()
        raise StoreUnavailableError(f"MLflow refuses: {text}") from error
