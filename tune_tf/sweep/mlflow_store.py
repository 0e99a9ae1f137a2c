"""MLflow store of an existing sweep."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from tune_tf.errors import InvalidSettingsError, StoreUnavailableError
from tune_tf.secrets import mask_secrets
from tune_tf.sweep_folder import SweepFolder
from tune_tf.tracking.runs import find_run_ids
from tune_tf.tracking.store import connect
from tune_tf.tracking.writing.run_update import PARENT

if TYPE_CHECKING:
    from mlflow import MlflowClient


@dataclass(frozen=True)
class MLflowStore:
    """MLflow store with the runs of a sweep.

    Args:
        tracking_uri: URI of the store; may hold a password.
        run_ids: MLflow's run ids by trial id, and that of the sweep's run.
    """

    client: "MlflowClient"
    tracking_uri: str = field(repr=False)
    experiment_name: str
    run_ids: dict[str, str]

    @classmethod
    def open(cls, folder: SweepFolder) -> Self:
        """Connect to the store and find the runs of a sweep.

        Raises:
            InvalidSettingsError: The sweep is not tracked.
            StoreUnavailableError: The store does not answer, or has no run of the sweep.
        """
        settings, uri = folder.config.mlflow, folder.tracking_uri
        if settings is None or uri is None:
            raise InvalidSettingsError(
                [f"{folder.sweep_id} is not tracked: its settings have no mlflow section"]
            )
        client = connect(uri)
        try:
            run_ids = find_run_ids(client, settings.experiment_name, folder.sweep_id)
        except Exception as error:
            lines = mask_secrets(str(error).replace(uri, "the store")).strip().splitlines()
            raise StoreUnavailableError(
                f"the MLflow store of {folder.sweep_id} does not answer: "
                f"{lines[-1] if lines else type(error).__name__}"
            ) from error
        if PARENT not in run_ids:
            raise StoreUnavailableError(
                f"MLflow has no runs of {folder.sweep_id}: deliver them with `tune-tf sync "
                f"{folder.path}`"
            )
        return cls(client, uri, settings.experiment_name, run_ids)

    @property
    def parent_run_id(self) -> str:
        """MLflow's id of the sweep's run."""
        return self.run_ids[PARENT]
