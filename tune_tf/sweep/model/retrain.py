"""Retraining of a sweep's best config on more rows and devices: the final model."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
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
from tune_tf.resources import TrialResources
from tune_tf.results import TrialResult
from tune_tf.sweep.callbacks.guards import BrokenWorkloadCheck
from tune_tf.sweep.cluster import TUNE_ENVIRONMENT, cluster, environment_defaults, runs_as_user
from tune_tf.sweep.mlflow_store import MLflowStore
from tune_tf.sweep.model.export_process import ModelExportProcess
from tune_tf.sweep.model.retrained_run import (
    FinalModelResult,
    ModelComparison,
    RetrainRows,
    record_final_model,
)
from tune_tf.sweep.state.storage import SweepStorage
from tune_tf.sweep_folder import SweepFolder, trial_folder_name
from tune_tf.tracking.names import mlflow_metrics
from tune_tf.tracking.writing.run_update import Report, now_ms
from tune_tf.trainables import trainable
from tune_tf.trainables.capacity import check_cluster, default_resources, largest_node
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
class _ReportRecorder(tune.Callback):
    """Tune callback that keeps the reports of a trial."""

    on_epoch: EpochCallback
    reports: list[Report] = field(default_factory=list)

    def on_trial_result(self, result: dict[str, Any], **info: Any) -> None:
        metrics = mlflow_metrics(result)
        epoch = int(result["training_iteration"])
        # A restore repeats epochs.
        self.reports = [report for report in self.reports if report.step < epoch]
        self.reports.append(Report(epoch, time.time_ns() // 1_000_000, metrics))
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
    """Train a trial's config again, by default the best one's, on more rows and devices.

    Training uses the trial's seed, so ``on="train"`` with as many replicas reproduces the trial's
    numbers. The folder lies beside the sweep's. The MLflow run is in the sweep's experiment and is
    linked with the runs of sweep and trial. The model and the trial's own are both evaluated on the
    test rows, if there are any.

    Args:
        sweep: Folder, id or name of the sweep; a name selects its latest sweep.
        trial: The trial's id, a prefix of it, or its number.
        on: The training rows of the trials, with or without their validation rows. Test rows are
            never included.
        num_replicas: Model replicas; None for all GPUs of a node, or as in the sweep.
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
    _check(on, num_replicas, num_epochs)
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
    started = datetime.now(UTC).astimezone()
    name = f"{folder.sweep_id}-retrain-{started:%Y%m%d-%H%M%S}"
    path = folder.path.parent / name
    recorder = _ReportRecorder(on_epoch)
    with cluster(), environment_defaults(TUNE_ENVIRONMENT), ModelExportProcess() as export_process:
        path.mkdir(mode=0o700 if runs_as_user() else 0o777)
        batch_size = workload.global_batch_size(source.config)
        parallelism = final_parallelism(config, num_replicas, batch_size)
        trained = _train(config, workload, source, on, parallelism, epochs, path, recorder)
        checkpoint = SweepStorage.of(path, config).location(trained.checkpoint.path)
        origin = {"tune_tf.sweep_id": folder.sweep_id, "tune_tf.trial_id": source.trial_id}
        # The model is written first, since test rows may be invalid.
        model = export_process.write(workload, source.config, checkpoint, path / _MODEL, origin)
        test_metrics = export_process.evaluate(workload, source.config, checkpoint)
        trial_metrics = _test_of_trial(export_process, workload, source) if test_metrics else {}
    last = recorder.reports[-1]
    metrics = {name: value for name, value in last.metrics.items() if "/" not in name}
    result = FinalModelResult(
        sweep_id=folder.sweep_id,
        trial=source,
        on=on,
        path=path,
        model_path=model.path / _KERAS_FILE,
        metrics={**metrics, **test_metrics},
        num_epochs=last.step,
        parallelism=parallelism,
        comparison=ModelComparison.of(view.result.objective, test_metrics, trial_metrics),
    )
    if store is None:
        return result
    if test_metrics:
        recorder.reports.append(Report(last.step, now_ms(), test_metrics, once=False))
    return record_final_model(result, store, model, recorder.reports, started)


def _check(on: str, num_replicas: int | None, num_epochs: int | None) -> None:
    errors = []
    if on not in _ROWS:
        errors.append(f"on must be {one_of(_ROWS)}, not {on!r}{did_you_mean(on, _ROWS)}")
    errors += [
        f"{name} must be at least 1, not {value}"
        for name, value in (("num_replicas", num_replicas), ("num_epochs", num_epochs))
        if value is not None and value < 1
    ]
    if errors:
        raise InvalidSettingsError(errors)


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
    recorder: _ReportRecorder,
) -> Trial:
    """Train and return Tune's trial, which has completed with a checkpoint."""
    resources = final_resources(config, parallelism)
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
            f"training diverged after {len(recorder.reports)} epochs: {last[STOP_CAUSE]}"
        )
    if trial.status != Trial.TERMINATED or trial.checkpoint is None:
        raise KeyboardInterrupt
    return trial


def final_parallelism(
    config: SweepConfig, num_replicas: int | None, batch_size: int
) -> Parallelism:
    """Return the parallelism of the final model; folds and ensembles become one model of all rows.

    ``num_replicas`` is None for all GPUs of a node, or as in the sweep without GPUs. Each replica
    needs at least one row of ``batch_size``, that of all replicas.
    """
    parallelism = config.parallelism
    if isinstance(parallelism, Subtasks):
        parallelism = Mirrored()
    if num_replicas is None:
        if not isinstance(parallelism, Mirrored):
            return parallelism
        num_replicas = max(parallelism.num_replicas, min(_gpus_of_a_node(config), batch_size))
    scaled = parallelism.scaled_to(num_replicas)
    if scaled is not None:
        return scaled
    raise InvalidSettingsError(
        [
            f"the trials of {config.name} have parallelism of kind {parallelism.kind!r}, which "
            f"cannot be scaled to {num_replicas} replica(s): leave out --replicas"
        ]
    )


def final_resources(config: SweepConfig, parallelism: Parallelism) -> TrialResources:
    """Return the resources of the final model: all that it can use of one node."""
    if not isinstance(parallelism, Mirrored):
        return config.resources or default_resources(parallelism)
    on_gpus = _gpus_of_a_node(config) > 0
    declared = config.resources or TrialResources()
    cpus = int(largest_node(declared.with_counts(1, 0)).get("CPU", 1))
    return declared.with_counts(
        cpus=max(1, cpus, 0 if on_gpus else parallelism.num_replicas),
        gpus=parallelism.num_replicas if on_gpus else 0,
    )


def _gpus_of_a_node(config: SweepConfig) -> int:
    """Return the largest GPU count of a node; 0 if the sweep requests none."""
    if config.resources is not None and not config.resources.gpus:
        return 0
    declared = config.resources or TrialResources()
    return int(largest_node(declared.with_counts(1, 1)).get("GPU", 0))
