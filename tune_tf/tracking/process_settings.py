"""Default tracking URI and experiment: those of MLflow's own calls in this process.

``mlflow.set_tracking_uri`` and ``mlflow.set_experiment`` take precedence over the environment
variables ``MLFLOW_TRACKING_URI``, ``MLFLOW_EXPERIMENT_NAME`` and ``MLFLOW_EXPERIMENT_ID``. MLflow
is loaded only to look up an experiment by its id.
"""

import os
import sys

from tune_tf.errors import InvalidSettingsError
from tune_tf.secrets import mask_secrets
from tune_tf.tracking.mlflow_internals import active_experiment_id
from tune_tf.tracking.runs import connect

DEFAULT_TRACKING_URI = "sqlite:///mlflow.db"
DEFAULT_EXPERIMENT_NAME = "tune_tf"

_URI = "MLFLOW_TRACKING_URI"
_NAME = "MLFLOW_EXPERIMENT_NAME"
_ID = "MLFLOW_EXPERIMENT_ID"
_SET = "mlflow.set_experiment"


def process_tracking_uri() -> str:
    """Return the tracking URI of this process."""
    mlflow = sys.modules.get("mlflow")
    is_set = getattr(mlflow, "is_tracking_uri_set", None)
    if mlflow is not None and is_set is not None and is_set():
        return str(mlflow.get_tracking_uri())
    return os.environ.get(_URI) or DEFAULT_TRACKING_URI


def process_experiment_name(tracking_uri: str) -> str:
    """Return the name of the experiment of this process.

    Args:
        tracking_uri: The store. An experiment id is valid only in the process's default store, a
            name in any.

    Raises:
        InvalidSettingsError: The experiment cannot be read, or name and id disagree.
    """
    name = os.environ.get(_NAME) or None
    is_own = tracking_uri == process_tracking_uri()
    if is_own and (chosen := active_experiment_id()):
        return _experiment_name(chosen, tracking_uri, f"the experiment of {_SET}")
    given = os.environ.get(_ID) or None
    if not is_own or given is None:
        return name or DEFAULT_EXPERIMENT_NAME
    found = _experiment_name(given, tracking_uri, f"{_ID}={given!r}")
    if name is not None and name != found:
        raise InvalidSettingsError(
            [
                f"{_NAME}={name!r} and {_ID}={given!r}, which is {found!r}, disagree: unset one, "
                "or set experiment_name"
            ]
        )
    return found


def _experiment_name(experiment_id: str, tracking_uri: str, what: str) -> str:
    remedy = "choose another one, or set experiment_name"
    client = connect(tracking_uri)
    from mlflow.exceptions import MlflowException  # loaded with the client

    try:
        experiment = client.get_experiment(experiment_id)
    except MlflowException as error:
        raise InvalidSettingsError(
            [
                f"{what} cannot be read from {mask_secrets(tracking_uri)}: "
                f"{mask_secrets(str(error))}; {remedy}"
            ]
        ) from error
    if experiment.lifecycle_stage != "active":
        raise InvalidSettingsError(
            [f"{what} is the experiment {experiment.name!r}, which was deleted: {remedy}"]
        )
    return str(experiment.name)
