"""The model of a trial, written to serve it."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tune_tf.errors import InvalidSettingsError
from tune_tf.inspection.sweep_view import SweepView
from tune_tf.results import SUFFIXES, TrialResult, check_export

if TYPE_CHECKING:
    from tune_tf.training.export import FileFormat


@dataclass(frozen=True)
class Export:
    """A model that was written.

    Args:
        path: The file, or the folder of a ``saved_model``.
        file_format: How it was written.
        sweep_id: Whose trial.
        trial: The trial.
        workload: As the sweep file names it: of a ``.keras`` file its module must be imported first
            if it has layers or functions of its own.
    """

    path: Path
    file_format: str
    sweep_id: str
    trial: TrialResult
    workload: str


def export_trial(
    sweep: str | Path,
    output: str | Path | None = None,
    *,
    trial: str | None = None,
    file_format: "FileFormat" = "keras",
    storage_path: str | Path = "sweeps",
    force: bool = False,
) -> Export:
    """Write the model of a trial's last checkpoint, by default the best trial's.

    TensorFlow loads in this process. What ``Workload.per_example`` computes is no part of a model.

    Args:
        sweep: The sweep's folder, its id, or its name for the latest sweep of that name.
        output: Where to; by default a name in the working directory that tells sweep and trial.
        trial: The trial's id, its beginning, or its number.
        file_format: As for :meth:`tune_tf.SweepResult.export_model`.
        storage_path: Where sweeps are looked for by id or name.
        force: Whether what is there is replaced.

    Raises:
        UnknownSweepError: There is no such sweep.
        UnknownTrialError: The sweep has no such trial.
        UnknownMetricError: No trial is the best.
        CheckpointError: The trial has no checkpoint, or it cannot be read.
        InvalidSettingsError: The output is there already, or does not go with the format, or that
            needs a package that is not installed.
        WorkloadError: The workload cannot be imported, or its model not be written so.
    """
    view = SweepView.open(sweep, storage_path)
    result = view.result
    chosen = result.best_trial if trial is None else view.trial(trial).result
    suffix = SUFFIXES.get(file_format, "")
    path = Path(output or f"{result.sweep_id}-trial-{chosen.number}{suffix}")
    check_export(path, file_format)
    if path.exists() and not force:
        raise InvalidSettingsError(
            [f"{path} is there already: say another --output, or --force to write over it"]
        )
    result.export_model(path, chosen, file_format=file_format)
    return Export(path, file_format, result.sweep_id, chosen, result.config.workload)
