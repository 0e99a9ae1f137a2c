"""The store and the experiment that MLflow's own calls of this process would write to.

What was set by ``mlflow.set_tracking_uri`` and ``mlflow.set_experiment`` comes first, then the
environment: ``MLFLOW_TRACKING_URI``, ``MLFLOW_EXPERIMENT_NAME`` and ``MLFLOW_EXPERIMENT_ID``.
MLflow is loaded only to look up an experiment by its id.
"""

import os
import sys

from tune_tf.errors import InvalidSettingsError
from tune_tf.secrets import masked
from tune_tf.tracking.runs import connect

DEFAULT_TRACKING_URI = "sqlite:///mlflow.db"
DEFAULT_EXPERIMENT_NAME = "tune_tf"

_URI = "MLFLOW_TRACKING_URI"
_NAME = "MLFLOW_EXPERIMENT_NAME"
_ID = "MLFLOW_EXPERIMENT_ID"
_SET = "mlflow.set_experiment"


def process_tracking_uri() -> str:
    """Return where the process keeps its runs."""
    mlflow = sys.modules.get("mlflow")
    is_set = getattr(mlflow, "is_tracking_uri_set", None)
    if mlflow is not None and is_set is not None and is_set():
        return str(mlflow.get_tracking_uri())
    return os.environ.get(_URI) or DEFAULT_TRACKING_URI


def process_experiment_name(tracking_uri: str) -> str:
    """Return the name of the experiment that the process writes to.

    Args:
        tracking_uri: The store. An id counts in the process's own store only, a name in any.

    Raises:
        InvalidSettingsError: The store has no such experiment or does not answer, or name and id
            disagree.
    """
    name = os.environ.get(_NAME) or None
    is_own = tracking_uri == process_tracking_uri()
    fluent = sys.modules.get("mlflow.tracking.fluent")
    # Without this name, in another release, the environment says it: MLflow writes it there too.
    chosen = getattr(fluent, "_active_experiment_id", None)
    if is_own and chosen:
        return _name_of(str(chosen), tracking_uri, f"the experiment that {_SET} chose")
    given = os.environ.get(_ID) or None
    if not is_own or given is None:
        return name or DEFAULT_EXPERIMENT_NAME
    found = _name_of(given, tracking_uri, f"{_ID}={given!r}")
    if name is not None and name != found:
        raise InvalidSettingsError(
            [
                f"{_NAME}={name!r} and {_ID}={given!r}, which is {found!r}, disagree: unset one, "
                "or give experiment_name"
            ]
        )
    return found


def _name_of(experiment_id: str, tracking_uri: str, what: str) -> str:
    remedy = "choose another one, or give experiment_name"
    client = connect(tracking_uri)
    from mlflow.exceptions import MlflowException  # loaded with the client

    try:
        experiment = client.get_experiment(experiment_id)
    except MlflowException as error:
        raise InvalidSettingsError(
            [f"{what} is not to be had from {masked(tracking_uri)}: {masked(str(error))}; {remedy}"]
        ) from error
    if experiment.lifecycle_stage != "active":
        raise InvalidSettingsError(
            [f"{what} is the experiment {experiment.name!r}, which was deleted: {remedy}"]
        )
    return str(experiment.name)
