"""Plan of a sweep, checked without training, and its scheduler and searcher."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import ray

from tune_tf.config import SweepConfig, import_workload
from tune_tf.config.scheduler_settings import PopulationSettings
from tune_tf.errors import ErrorDetail, InvalidSettingsError
from tune_tf.outcome import CONFIG_CHANGED_AT
from tune_tf.record import RecordedResult, RecordedTrial, SweepHistory, trial_results
from tune_tf.resources import TrialResources
from tune_tf.result_keys import TRAINING_ITERATION
from tune_tf.schedulers import scheduler
from tune_tf.schedulers.mutations import pb2_refusal, pbt_refusal, select_mutations
from tune_tf.searchers import OptunaSearcher, ReplayedTrial, WarmStart
from tune_tf.searchers.criteria import SearchCriteria
from tune_tf.searchers.samplers.catalogue import make_sampler
from tune_tf.searchers.samplers.custom_samplers import ProposalSampler
from tune_tf.secrets import expand_references
from tune_tf.sweep.cluster import cluster_address, num_fitting
from tune_tf.sweep.storage import check_storage
from tune_tf.sweep_folder import SweepFolder
from tune_tf.tracking.store import check_names, check_tracking_uri, read_credentials
from tune_tf.tracking.trial_run import TrialTracking
from tune_tf.trainables.capacity import default_resources
from tune_tf.workload import Workload


@dataclass(frozen=True)
class SweepPlan:
    """Checked plan of a sweep."""

    config: SweepConfig
    workload: Workload  # with known properties of its data
    resources: TrialResources  # of a trial
    max_concurrent_trials: int
    examples: tuple[dict[str, Any], ...]  # configs of the space
    mutations: tuple[str, ...] | None = None
    """As returned by :func:`allowed_mutations`."""


def check_settings(config: SweepConfig, base_dir: Path, folder: Path | None = None) -> Workload:
    """Check a sweep as far as possible without a cluster, and return its workload.

    ``folder`` is that of a sweep that exists.

    Raises:
        WorkloadError: The workload cannot be imported, or its data are invalid.
        InvalidSettingsError: A component rejects its settings.
    """
    check_storage(config, folder)
    workload = import_workload(config.workload, base_dir, config.data)
    make_scheduler(config)
    _check_sampler(config)
    checked_tracking_uri(config)
    _check_searcher(config, is_new=folder is None)
    if not ray.is_initialized() and cluster_address(config.cluster) is None:
        num_fitting(config.resources or default_resources(config.parallelism), config.parallelism)
    workload.check_data()
    return workload


def _check_sampler(config: SweepConfig) -> None:
    try:
        make_sampler(
            config.searcher.sampler,
            config.seed,
            space=config.space,
            num_objectives=len(config.objectives),
            arguments=config.searcher.arguments,
        )
    except InvalidSettingsError as error:
        details = [it.within("space" if it.where else "searcher") for it in error.details]
        raise InvalidSettingsError(details) from error


def _check_searcher(config: SweepConfig, *, is_new: bool) -> None:
    """Check the configs to try first, and of a new sweep the source of its warm start.

    An existing sweep has read the source, which need not be there any more.
    """
    searcher = config.searcher
    OptunaSearcher(
        config.space,
        config.objectives,
        searcher.sampler,
        seed=config.seed,
        points_to_evaluate=searcher.points_to_evaluate,
        sampler_arguments=searcher.arguments,
    )
    if is_new and searcher.warm_start_from:
        source = expand_references(searcher.warm_start_from, "searcher.warm_start_from")
        criteria = SearchCriteria.of(config.objectives, config.constraints)
        next(WarmStart(source, checked_tracking_uri(config)).read(criteria), None)


def plan_sweep(
    config: SweepConfig, *, base_dir: Path, workload: Workload | None = None
) -> SweepPlan:
    """Check a sweep on the present cluster as far as possible without training.

    A relative workload path starts from ``base_dir``; ``workload`` is the result of
    :func:`check_settings`, if the settings were checked before.

    Raises:
        WorkloadError: The workload cannot be imported, or its data are invalid.
        InvalidSettingsError: A component rejects its settings.
        UnavailableResourcesError: No node can hold a trial.
    """
    workload = workload or check_settings(config, base_dir)
    resources = config.resources or default_resources(config.parallelism)
    fitting = num_fitting(resources, config.parallelism)
    limit = config.max_concurrent_trials or fitting
    max_concurrent = min(limit, fitting, config.budget.num_samples)
    rng = np.random.default_rng(config.seed)
    examples = tuple(config.space.sample(rng) for _ in range(3))
    mutations = allowed_mutations(config, workload)
    return SweepPlan(config, workload, resources, max_concurrent, examples, mutations)


def checked_tracking_uri(config: SweepConfig) -> str | None:
    """Return the valid tracking URI with expanded references; None if tracking is off."""
    if config.mlflow is None:
        return None
    uri = expand_references(config.mlflow.tracking_uri, "mlflow.tracking_uri")
    check_tracking_uri(uri)
    check_names(config.mlflow.experiment_name)
    return uri


def allowed_mutations(config: SweepConfig, workload: Workload) -> tuple[str, ...] | None:
    """Return the paths of the parameters that the scheduler may change: the named ones, or all.

    A parameter that shapes the model cannot change, as a trial continues from its checkpoint. A Ray
    task builds models to find out, so that this process never loads TensorFlow. Returns None if the
    scheduler changes nothing, or no cluster is connected.

    Raises:
        InvalidSettingsError: A named parameter cannot change, or none can.
    """
    settings = config.scheduler
    if not isinstance(settings, PopulationSettings) or not ray.is_initialized():
        return None
    refusal = pb2_refusal if settings.name == "pb2" else pbt_refusal
    selection = select_mutations(settings.mutations, config.space, refusal, settings.name)
    paths = list(selection.parameters)
    structural = ray.get(_structural.remote(workload, config.space, paths))
    allowed = tuple(path for path in paths if path not in structural)
    problems = [
        f"{path} cannot change while a trial runs: {reason}" for path, reason in structural.items()
    ]
    if settings.mutations and structural:
        texts = [f"{problem}; leave it out" for problem in problems]
    elif not allowed:
        texts = [f"no parameter can change while a trial runs: {'; '.join(problems)}; use asha"]
    else:
        return allowed
    raise InvalidSettingsError([ErrorDetail("scheduler.mutations", text) for text in texts])


@ray.remote(num_cpus=1, max_retries=0, max_calls=1)  # TensorFlow is configured once per process
def _structural(workload, space, paths):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # a task without GPUs would see all
    from tune_tf.tracking.trial_run import throwaway_run
    from tune_tf.training.build import structural_parameters  # loads TensorFlow

    with throwaway_run():
        return structural_parameters(workload, space, paths)


def make_scheduler(config: SweepConfig, mutations: Sequence[str] | None = None) -> Any:
    """Create the scheduler, which may change ``mutations``; None for those of the settings."""
    settings = config.scheduler.model_dump()
    if mutations is not None:
        settings["mutations"] = list(mutations)
    if "seed" in settings and settings["seed"] is None:
        settings["seed"] = config.seed
    return scheduler(
        **settings,
        epochs=config.epochs,
        objective=config.leading_objective,
        space=config.space,
        constraints=config.constraints,
    )


def make_searcher(folder: SweepFolder, history: SweepHistory | None = None) -> OptunaSearcher:
    """Create the searcher, with the trials of a sweep that goes on.

    That of a reproducible sweep records what the scheduler proposes.

    Raises:
        TuneTfError: The space is unfit for it, or earlier results cannot be read.
    """
    config, history = folder.config, history or SweepHistory()
    if config.reproducible:
        sampler = ProposalSampler(config.space)
        searcher = OptunaSearcher(
            config.space, config.objectives, sampler, constraints=config.constraints
        )
    else:
        searcher = study_searcher(folder, history.earlier)
    searcher.replay([replayed_trial(folder.path, trial) for trial in history.trials.values()])
    return searcher


def replayed_trial(folder: Path, trial: RecordedTrial) -> ReplayedTrial:
    """Return what a searcher is to know of a recorded trial."""
    return ReplayedTrial(
        trial.trial_id,
        trial.suggested,
        trial.outcome,
        trial.cause,
        _results_for_searcher(trial_results(folder, trial.number)),
        trial.run_id,
        trial.note,
    )


def _results_for_searcher(results: Sequence[RecordedResult]) -> list[Mapping[str, Any]]:
    """Return a trial's results as the scheduler passes them on to the searcher.

    From the first one with another's weights, they name the last iteration before.
    """
    metrics = [result.metrics for result in results]
    own = [result.metrics for result in results if result.exploits == 0]
    last = int(own[-1][TRAINING_ITERATION]) if own else 0
    return [*own, *({**each, CONFIG_CHANGED_AT: last} for each in metrics[len(own) :])]


def study_searcher(
    folder: SweepFolder, earlier: Sequence[Mapping[str, Any]] | None = None
) -> OptunaSearcher:
    """Create the searcher with the sampler of the settings.

    ``earlier`` are the results of a warm start, if they have been read.
    """
    config, searcher = folder.config, folder.config.searcher
    source = folder.warm_start_from if earlier is None else None
    tracking_uri = folder.tracking_uri if source and source.startswith("mlflow:") else None
    return OptunaSearcher(
        config.space,
        config.objectives,
        searcher.sampler,
        seed=config.seed,
        constraints=config.constraints,
        points_to_evaluate=searcher.points_to_evaluate,
        warm_start_from=source and WarmStart(source, tracking_uri),
        sampler_arguments=searcher.arguments,
        earlier=earlier,
    )


def make_trial_tracking(folder: SweepFolder) -> TrialTracking | None:
    """Return what trials need to find their MLflow runs; None if tracking is off."""
    if folder.config.mlflow is None or folder.tracking_uri is None:
        return None
    return TrialTracking(
        folder.tracking_uri,
        folder.config.mlflow.experiment_name,
        folder.mlflow_id,
        system_metrics=folder.config.mlflow.system_metrics,
        credentials=read_credentials(),  # a worker elsewhere does not inherit the environment
    )
