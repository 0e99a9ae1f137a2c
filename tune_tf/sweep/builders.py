"""Builders of a sweep's scheduler, searcher and tracker from its settings."""

from collections.abc import Sequence
from typing import Any

import ray

from tune_tf.config import SweepConfig
from tune_tf.config.scheduler_settings import Pb2Settings, PbtSettings, ResourceChangingSettings
from tune_tf.errors import ErrorDetail, InvalidSettingsError
from tune_tf.schedulers import scheduler
from tune_tf.schedulers.mutations import pb2_refusal, pbt_refusal, select_mutations
from tune_tf.schedulers.outcome_mixin import OutcomeMixin
from tune_tf.searchers import OptunaSearcher, WarmStart
from tune_tf.sweep_folder import SweepFolder
from tune_tf.tracking import MLflowCallback, SweepDetails
from tune_tf.tracking.store import read_credentials
from tune_tf.tracking.trial_run import TrialTracking
from tune_tf.tracking.writing.spool import SPOOL_FOLDER
from tune_tf.workload import Workload


def allowed_mutations(config: SweepConfig, workload: Workload) -> tuple[str, ...] | None:
    """Return the parameters that the scheduler may change: the named ones, or all possible ones.

    A parameter that shapes the model cannot change, as a trial continues from its checkpoint. A Ray
    task builds models to find out, so that this process never loads TensorFlow.

    Returns:
        Paths; None if the scheduler changes nothing, or no cluster is connected.

    Raises:
        InvalidSettingsError: A named parameter cannot change, or none can.
    """
    settings = config.scheduler
    if isinstance(settings, ResourceChangingSettings):
        settings = settings.base
    if not isinstance(settings, PbtSettings | Pb2Settings) or not ray.is_initialized():
        return None
    refusal = pb2_refusal if isinstance(settings, Pb2Settings) else pbt_refusal
    chosen = select_mutations(settings.mutations, config.space, refusal, settings.name)
    paths = list(chosen.parameters)
    structural = ray.get(_structural.remote(workload, config.space, paths))
    allowed = tuple(path for path in paths if path not in structural)
    where = "scheduler.mutations"
    messages = [
        f"{path} cannot change while a trial runs: {structural[path]}" for path in structural
    ]
    if settings.mutations and structural:
        raise InvalidSettingsError(
            [ErrorDetail(where, f"{each}; leave it out") for each in messages]
        )
    if not allowed:
        text = f"no parameter can change while a trial runs: {'; '.join(messages)}; use asha"
        raise InvalidSettingsError([ErrorDetail(where, text)])
    return allowed


@ray.remote(num_cpus=1, max_retries=0, max_calls=1)  # TensorFlow is configured once per process
def _structural(workload, space, paths):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    from tune_tf.tracking.trial_run import throwaway_run
    from tune_tf.training.reuse.mutability import structural_parameters  # loads TensorFlow

    with throwaway_run():
        return structural_parameters(workload, space, paths)


def make_scheduler(config: SweepConfig, mutations: Sequence[str] | None = None) -> Any:
    """Create the scheduler.

    ``mutations`` are the parameters that running trials may change; None for the settings' own.

    Raises:
        InvalidSettingsError: The scheduler rejects its settings.
    """
    settings = config.scheduler.model_dump()
    if mutations is not None:
        settings.get("base", settings)["mutations"] = list(mutations)
    return scheduler(**settings, objective=config.leading_objective, space=config.space)


def make_searcher(folder: SweepFolder) -> OptunaSearcher:
    """Create the searcher.

    Raises:
        TuneTfError: The sampler does not support the space, or the study cannot be resumed.
    """
    config, searcher = folder.config, folder.config.searcher
    earlier = folder.warm_start_from
    return OptunaSearcher(
        config.space,
        config.objectives,
        searcher.sampler,
        seed=searcher.seed,
        storage=folder.study_storage,
        study_name=searcher.study_name or folder.sweep_id,
        constraints=config.constraints,
        points_to_evaluate=searcher.points_to_evaluate,
        warm_start_from=earlier and WarmStart(earlier, _tracking_uri(folder, earlier)),
        allow_changed_space=searcher.allow_changed_space,
    )


def make_tracker(
    folder: SweepFolder, scheduler: OutcomeMixin, searcher: OptunaSearcher
) -> MLflowCallback | None:
    """Create the MLflow callback; None if tracking is off."""
    if folder.config.mlflow is None or folder.tracking_uri is None:
        return None
    return MLflowCallback(
        folder.tracking_uri,
        folder.config.mlflow.experiment_name,
        sweep_name=folder.sweep_id,
        objective=folder.config.leading_objective,
        constraints=folder.config.constraints,
        sweep_id=folder.sweep_id,
        spool_path=folder.path / SPOOL_FOLDER,
        details=SweepDetails(
            space=folder.config.space,
            resume_with=f"tune-tf resume {folder.path}",
            rungs=lambda: scheduler.rungs,
            optuna_number=searcher.number_of,
            texts={"sweep.yaml": folder.masked_file},
        ),
    )


def make_trial_tracking(folder: SweepFolder) -> TrialTracking | None:
    """Return what trials need to find their MLflow runs; None if tracking is off."""
    if folder.config.mlflow is None or folder.tracking_uri is None:
        return None
    return TrialTracking(
        folder.tracking_uri,
        folder.config.mlflow.experiment_name,
        folder.sweep_id,
        system_metrics=folder.config.mlflow.system_metrics,
        credentials=read_credentials(),  # a worker elsewhere does not inherit the environment
    )


def _tracking_uri(folder: SweepFolder, earlier: str) -> str | None:
    return folder.tracking_uri if earlier.startswith("mlflow:") else None
