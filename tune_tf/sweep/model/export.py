"""Export of a trial's model for serving."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tune_tf.errors import InvalidSettingsError
from tune_tf.inspection.sweep_view import SweepView
from tune_tf.results import EXPORT_SUFFIXES, TrialResult, check_export

if TYPE_CHECKING:
    from tune_tf.training.export import FileFormat


@dataclass(frozen=True)
class Export:
    """Exported model: a file, or the folder of a ``saved_model``."""

    path: Path
    file_format: str
    sweep_id: str
    trial: TrialResult


def export_trial(
    sweep: str | Path,
    output: str | Path | None = None,
    *,
    trial: str | None = None,
    file_format: "FileFormat" = "keras",
    storage_path: str | Path = "sweeps",
    force: bool = False,
) -> Export:
    """Export the model of a trial's last checkpoint, by default the best trial's.

    TensorFlow is loaded in this process. The model excludes ``Workload.per_example``.

    Args:
        sweep: Folder, id or name of the sweep; a name selects its latest sweep.
        output: Path to write; by default named after sweep and trial, in the working directory.
        trial: The trial's number or id.
        file_format: As for :meth:`tune_tf.SweepResult.export_model`.
        storage_path: Folder that is searched for ids and names.
        force: Whether to replace an existing file or folder.

    Raises:
        UnknownSweepError: There is no such sweep.
        UnknownTrialError: The sweep has no such trial.
        UnknownMetricError: No feasible trial reported a finite value.
        CheckpointError: The trial has no checkpoint, or it cannot be read.
        InvalidSettingsError: The output exists or does not match the format, or the format needs a
            package that is not installed.
        WorkloadError: The workload cannot be imported, or its model not exported in this format.
    """
    view = SweepView.open(sweep, storage_path)
    result = view.result
    trial_result = result.best_trial if trial is None else view.trial(trial).result
    suffix = EXPORT_SUFFIXES.get(file_format, "")
    path = Path(output or f"{result.sweep_id}-trial-{trial_result.number}{suffix}")
    check_export(path, file_format)
    if path.exists() and not force:
        raise InvalidSettingsError(
            f"{path} already exists: name another --output, or overwrite it with --force"
        )
    result.export_model(path, trial_result, file_format=file_format)
    return Export(path, file_format, result.sweep_id, trial_result)
