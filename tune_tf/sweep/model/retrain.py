"""Retraining of a sweep's best config on more rows and devices: the final model."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import ray
from ray import tune
from ray.tune.experiment import Trial
from ray.tune.utils import flatten_dict

from tune_tf.config import SweepConfig, import_workload
from tune_tf.data.rows import all_to_train
from tune_tf.errors import (
    DivergedError,
    InvalidSettingsError,
    WorkerError,
    did_you_mean,
    first_line,
    one_of,
)
from tune_tf.inspection.sweep_view import SweepView
from tune_tf.outcome import STOP_CAUSE, Outcome
from tune_tf.outcome_rules import error_cause
from tune_tf.parallelism import Mirrored, Parallelism, Subtasks
from tune_tf.results import TrialResult
from tune_tf.sweep.callbacks.guards import BrokenWorkloadCheck
from tune_tf.sweep.cluster import TUNE_ENVIRONMENT, cluster, environment_defaults, runs_as_user
from tune_tf.sweep.mlflow_store import MLflowStore
from tune_tf.sweep.model.export_process import ModelExportProcess
from tune_tf.sweep.model.retrained_run import (
    EpochMetrics,
    FinalModelResult,
    ModelComparison,
    RetrainRows,
    record_final_model,
)
from tune_tf.sweep.state.storage import SweepStorage
from tune_tf.sweep_folder import SweepFolder, trial_folder_name
from tune_tf.tracking.names import mlflow_metrics
from tune_tf.tracking.writing.run_update import now_ms
from tune_tf.trainables import trainable
from tune_tf.trainables.capacity import check_cluster, default_resources
from tune_tf.trainables.memory.oom_retries import OomRetries
from tune_tf.tune_internals.trial_state import latest_result, trial_error
from tune_tf.workload import Config, Data, Workload, with_mixin

_log = logging.getLogger(__name__)

EpochCallback = Callable[[int, Mapping[str, float]], None]

_ROWS = get_args(RetrainRows)
_MODEL = "model"
_KERAS_FILE = Path("data", "model.keras")  # MLflow's layout


class _AllRows:
    """Workload mixin that adds the validation rows to the training rows."""

    def load_data(self, config: Config) -> Data:
        import keras  # loaded in the trial

        data: Data = super().load_data(config)  # type: ignore[misc]
        return all_to_train(data, floatx=keras.config.floatx())


@dataclass
class _EpochRecorder(tune.Callback):
    """Tune callback that keeps the metrics of a trial's epochs; a restore repeats some."""

    on_epoch: EpochCallback
    epochs: EpochMetrics = field(default_factory=dict)

    def on_trial_result(self, result: dict[str, Any], **info: Any) -> None:
        metrics = mlflow_metrics(result)
        epoch = int(result["training_iteration"])
        self.epochs[epoch] = (now_ms(), metrics)
        self.on_epoch(epoch, metrics)


def retrain_trial(
    sweep: str | Path,
    *,
    trial: str | None = None,
    on: RetrainRows = "train+validation",
    num_replicas: int | None = None,
    num_epochs: int | None = None,
    storage_path: str | Path = "sweeps",
    on_epoch: EpochCallback = lambda epoch, metrics: None,
) -> FinalModelResult:
    """Train a trial's config again, by default the best one's, on more rows or devices.

    Training uses the trial's seed, so ``on="train"`` with as many replicas reproduces the trial's
    numbers. The folder lies beside the sweep's. The MLflow run is in the sweep's experiment and is
    linked with the runs of sweep and trial. The model and the trial's own are both evaluated on the
    test rows, if there are any.

    Args:
        sweep: Folder, id or name of the sweep; a name selects its latest sweep.
        trial: The trial's number or id.
        on: The training rows of the trials, with or without their validation rows. Test rows are
            never included.
        num_replicas: Model replicas; None for those of the sweep.
        num_epochs: Number of epochs; None for that of the epoch that the trial keeps (``keep``).
        storage_path: Folder that is searched for ids and names.
        on_epoch: Receives each epoch and its metrics.

    Raises:
        UnknownSweepError: There is no such sweep.
        UnknownTrialError: It has no such trial.
        InvalidSettingsError: A setting is not allowed.
        WorkloadError: The workload or its data are missing or invalid.
        StoreUnavailableError: MLflow does not answer, so the run could not be recorded.
        UnavailableResourcesError: Too few devices are available.
        DivergedError: Training produced NaN or Inf.
        WorkerError: Training failed.
    """
    if on not in _ROWS:
        raise InvalidSettingsError(
            f"on must be {one_of(_ROWS)}, not {on!r}{did_you_mean(on, _ROWS)}"
        )
    if any(number is not None and number < 1 for number in (num_replicas, num_epochs)):
        raise InvalidSettingsError("num_replicas and num_epochs must be at least 1")
    folder = SweepFolder.open(sweep, storage_path)
    config = folder.config
    view = SweepView.open(folder.path)
    source = view.result.best_trial if trial is None else view.trial(trial).result
    epochs = num_epochs or source.kept_iteration
    if not epochs:
        raise InvalidSettingsError(
            f"trial {source.number} has completed no epoch: set the number of epochs with --epochs"
        )
    workload = import_workload(config.workload, folder.base_dir, config.data)
    workload.check_data()
    store = None if config.mlflow is None else MLflowStore.open(folder)
    start_ms = now_ms()
    path = folder.path.parent / f"{folder.sweep_id}-retrain-{time.strftime('%Y%m%d-%H%M%S')}"
    recorder, model = _EpochRecorder(on_epoch), path / _MODEL
    with cluster(), environment_defaults(TUNE_ENVIRONMENT), ModelExportProcess() as export_process:
        path.mkdir(mode=0o700 if runs_as_user() else 0o777)
        parallelism = final_parallelism(config, num_replicas)
        trained = _train(config, workload, source, on, parallelism, epochs, path, recorder)
        checkpoint = SweepStorage.of(path, config).location(trained.checkpoint.path)
        origin = {"tune_tf.sweep_id": folder.sweep_id, "tune_tf.trial_id": source.trial_id}
        # The model is written first, since test rows may be invalid.
        export_process.write(workload, source.config, checkpoint, model, origin)
        test_metrics = export_process.evaluate(workload, source.config, checkpoint)
        trial_metrics = _test_of_trial(export_process, workload, source) if test_metrics else {}
    last = max(recorder.epochs)
    time_ms, metrics = recorder.epochs[last]
    recorder.epochs[last] = time_ms, {**metrics, **test_metrics}
    result = FinalModelResult(
        sweep_id=folder.sweep_id,
        trial=source,
        on=on,
        path=path,
        model_path=model / _KERAS_FILE,
        metrics={
            **{name: value for name, value in metrics.items() if "/" not in name},
            **test_metrics,
        },
        num_epochs=last,
        parallelism=parallelism,
        comparison=ModelComparison.of(view.result.objective, test_metrics, trial_metrics),
    )
    if store is None:
        return result
    return record_final_model(result, store, model, recorder.epochs, start_ms)


def _test_of_trial(
    export_process: ModelExportProcess, workload: Workload, source: TrialResult
) -> Mapping[str, float]:
    """Return the metrics of a trial's own model on today's test rows; empty if it has none."""
    problem: object = "it has no checkpoint"
    if source.checkpoint is not None:
        try:
            return export_process.evaluate(workload, source.config, source.checkpoint)
        except ray.exceptions.RayError as error:  # the final model is not lost with it
            problem = first_line(getattr(error, "cause", None) or error)
    _log.warning("Not compared with the model of trial %d: %s", source.number, problem)
    return {}


def _train(
    config: SweepConfig,
    workload: Workload,
    source: TrialResult,
    on: RetrainRows,
    parallelism: Parallelism,
    epochs: int,
    path: Path,
    recorder: _EpochRecorder,
) -> Trial:
    """Train and return Tune's trial, which has completed with a checkpoint."""
    resources = default_resources(parallelism)
    if parallelism == config.parallelism and config.resources is not None:
        resources = config.resources
    parallelism.check(resources)
    check_cluster(resources, parallelism)
    if on == "train+validation":
        workload = with_mixin(_AllRows, workload)
    trial_name = trial_folder_name(source.number)  # determines the seed
    logger = logging.getLogger("ray.tune.tune")
    level = logger.level
    logger.setLevel(logging.CRITICAL)  # errors are raised below
    try:
        analysis = tune.run(
            trainable(
                workload,
                parallelism,
                resources=resources,
                loop=config.loop,
                seed=config.seed,
                checkpoint_interval_s=config.checkpoint_interval_s,
                epochs=epochs,
                share_frozen=config.share_frozen,
            ),
            name=path.name,
            storage_path=config.remote_storage or str(path.parent),
            config=dict(source.config),
            stop={"training_iteration": epochs},
            max_failures=config.max_failures,
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=True, num_to_keep=1),
            callbacks=[
                BrokenWorkloadCheck(),
                OomRetries(workload, parallelism, loop=config.loop, oom_retries=config.oom_retries),
                recorder,
            ],
            trial_name_creator=lambda trial: trial_name,
            trial_dirname_creator=lambda trial: trial_name,
            raise_on_failed_trial=False,
            verbose=0,
        )
    finally:
        logger.setLevel(level)
    (trial,) = analysis.trials
    if trial.status == Trial.ERROR:
        raise WorkerError(f"training failed: {error_cause(trial_error(trial))}")
    last = flatten_dict(latest_result(trial))
    if Outcome.of_result(last) is Outcome.DIVERGED:
        raise DivergedError(
            f"training diverged after {len(recorder.epochs)} epochs: {last[STOP_CAUSE]}"
        )
    if trial.status != Trial.TERMINATED or trial.checkpoint is None:
        raise KeyboardInterrupt
    return trial


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
