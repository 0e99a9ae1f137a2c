"""Keeps how a workload scales: in a folder beside the sweeps, and in MLflow."""

import logging
from dataclasses import dataclass
from pathlib import Path

from tune_tf.config import SweepConfig
from tune_tf.scaling.files import write_files
from tune_tf.scaling.record import record
from tune_tf.scaling.scale import Scaling
from tune_tf.scaling.tracking_uri import checked_tracking_uri

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Kept:
    """Where it is.

    Args:
        folder: With the page, the picture, the numbers and the profile.
        mlflow_run_id: MLflow's id of its run; None where nothing is recorded.
    """

    folder: Path
    mlflow_run_id: str | None


def keep(scaling: Scaling, config: SweepConfig) -> Kept:
    """Write files below ``storage_path``, and a run in the sweep's experiment.

    A store that does not answer costs the run only: the files are there.

    Args:
        scaling: How the workload scales.
        config: The sweep's settings.

    Raises:
        OSError: A file cannot be written.
    """
    from mlflow.exceptions import MlflowException  # slow to import; needed at the end only

    name = f"{scaling.name}-scale-{scaling.started:%Y%m%d-%H%M%S}"
    folder = config.sweeps_path / name
    files = write_files(scaling, folder)
    tracking_uri = checked_tracking_uri(config)
    if tracking_uri is None or config.mlflow is None:
        return Kept(folder, None)
    try:
        run_id = record(
            scaling,
            files,
            tracking_uri=tracking_uri,
            experiment_name=config.mlflow.experiment_name,
            run=name,
        )
    except (MlflowException, OSError) as error:
        _log.warning("MLflow has not taken it (%s); the files are in %s", error, folder)
        return Kept(folder, None)
    return Kept(folder, run_id)
