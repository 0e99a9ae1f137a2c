"""Where the runs of a sweep are recorded."""

from tune_tf.config import SweepConfig
from tune_tf.secrets import expanded
from tune_tf.tracking import check_tracking_uri


def checked_tracking_uri(config: SweepConfig) -> str | None:
    """Return where runs are recorded, with passwords filled in; None where nowhere.

    Raises:
        InvalidSettingsError: It cannot work.
    """
    if config.mlflow is None:
        return None
    uri = expanded(config.mlflow.tracking_uri, "mlflow.tracking_uri")
    check_tracking_uri(uri)
    return uri
