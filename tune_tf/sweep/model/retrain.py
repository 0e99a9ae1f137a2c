"""The final model: a sweep of one trial with the best config of another sweep."""

from pathlib import Path
from typing import Any, Literal, get_args

from tune_tf.config import BudgetSettings, SearcherSettings, SweepConfig, import_workload
from tune_tf.config.scheduler_settings import FifoSettings
from tune_tf.config.stored_workload import StoredReference
from tune_tf.data.rows import all_to_train
from tune_tf.errors import InvalidSettingsError, did_you_mean, one_of
from tune_tf.inspection.sweep_view import SweepView
from tune_tf.objective import Objective
from tune_tf.parallelism import Mirrored, Parallelism, Subtasks
from tune_tf.space import Constant, SearchSpace, flatten
from tune_tf.sweep.cluster import with_absolute_paths
from tune_tf.sweep_folder import SweepFolder
from tune_tf.workload import Config, Data, with_mixin

RetrainRows = Literal["train+validation", "train"]
_ROWS = get_args(RetrainRows)


class _AllRows:
    """Workload mixin that adds the validation rows to the training rows."""

    def load_data(self, config: Config) -> Data:
        import keras  # loaded in the trial

        data: Data = super().load_data(config)  # type: ignore[misc]
        return all_to_train(data, floatx=keras.config.floatx())


def final_config(
    sweep: str | Path,
    *,
    trial: str | None = None,
    on: RetrainRows = "train+validation",
    num_replicas: int | None = None,
    num_epochs: int | None = None,
    storage_path: str | Path = "sweeps",
) -> SweepConfig:
    """Return the settings of a sweep that trains a trial's config again, by default the best one's.

    It has one trial, the name ``<name>-retrain`` and a folder beside that of the other sweep;
    :func:`tune_tf.run_sweep` runs it.

    Args:
        sweep: Folder, id or name of the sweep; a name selects its latest sweep.
        trial: The trial's number or id.
        on: The training rows of the trials, with or without their validation rows. Test rows are
            never included.
        num_replicas: Model replicas; None for those of the sweep.
        num_epochs: Number of epochs; None for that of the epoch that the trial keeps (``keep``).
        storage_path: Folder that is searched for ids and names.

    Raises:
        UnknownSweepError: There is no such sweep.
        UnknownTrialError: It has no such trial.
        InvalidSettingsError: A setting is not allowed.
        WorkloadError: The workload cannot be imported.
    """
    if on not in _ROWS:
        raise InvalidSettingsError(
            f"on must be {one_of(_ROWS)}, not {on!r}{did_you_mean(on, _ROWS)}"
        )
    if any(number is not None and number < 1 for number in (num_replicas, num_epochs)):
        raise InvalidSettingsError("num_replicas and num_epochs must be at least 1")
    folder = SweepFolder.open(sweep, storage_path)
    config, view = folder.config, SweepView.open(folder.path)
    source = view.result.best_trial if trial is None else view.trial(trial).result
    epochs = num_epochs or source.kept_iteration
    if not epochs:
        raise InvalidSettingsError(
            f"trial {source.number} has completed no epoch: set the number of epochs with --epochs"
        )
    workload = import_workload(config.workload, folder.base_dir, config.data)
    if on == "train+validation":
        workload = with_mixin(_AllRows, workload)
    parallelism = final_parallelism(config, num_replicas)
    is_same = parallelism == config.parallelism
    values = flatten(source.config, config.space.parameters).items()
    mlflow = config.mlflow
    if mlflow is not None:
        update: dict[str, Any] = {"log_best_model": True, "register_best": None}
        if mlflow.tracking_uri.startswith("sqlite:"):  # maybe relative to where the sweep began
            update["tracking_uri"] = folder.tracking_uri
        mlflow = mlflow.model_copy(update=update)
    return config.model_copy(
        update={
            "name": f"{config.name[:192]}-retrain",  # 200 at most
            "workload": StoredReference.of(workload),
            "data": None,
            "objective": Objective("loss", "min"),  # every trial reports it, on its training rows
            "constraints": (),
            "space": SearchSpace({path: Constant(value) for path, value in values}),
            "reproducible": False,
            "searcher": SearcherSettings(sampler="random"),
            "epochs": epochs,
            "scheduler": FifoSettings(epochs=epochs),
            "parallelism": parallelism,
            "resources": config.resources if is_same else None,
            "budget": BudgetSettings(num_samples=1),
            "mlflow": mlflow,
            "cluster": config.cluster.model_copy(
                update={
                    "runtime_env": config.cluster.runtime_env
                    and with_absolute_paths(config.cluster.runtime_env, folder.base_dir)
                }
            ),
            "storage_path": config.remote_storage or str(folder.path.parent),
            "keep": "last",
        }
    )


def final_parallelism(config: SweepConfig, num_replicas: int | None) -> Parallelism:
    """Return the parallelism of the final model; folds and ensembles become one model of all rows.

    ``num_replicas`` is None for that of the sweep.
    """
    parallelism = config.parallelism
    if isinstance(parallelism, Subtasks):
        parallelism = Mirrored()
    if num_replicas is None:
        return parallelism
    scaled = parallelism.scaled_to(num_replicas)
    if scaled is not None:
        return scaled
    raise InvalidSettingsError(
        [
            f"the trials of {config.name} have parallelism of kind {parallelism.kind!r}, which "
            f"cannot be scaled to {num_replicas} replica(s): leave out --replicas"
        ]
    )
