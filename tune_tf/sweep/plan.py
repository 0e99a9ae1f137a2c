"""Plan of a sweep, checked as far as possible without training."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tune_tf.config import SweepConfig, import_workload
from tune_tf.resources import TrialResources
from tune_tf.searchers.samplers.catalogue import make_sampler
from tune_tf.secrets import expand_references
from tune_tf.sweep.builders import allowed_mutations, make_scheduler
from tune_tf.sweep.cluster import num_fitting
from tune_tf.sweep.state.storage import check_storage
from tune_tf.tracking import MLflowCallback
from tune_tf.trainables.capacity import default_resources
from tune_tf.workload import Workload


@dataclass(frozen=True)
class SweepPlan:
    """Checked plan of a sweep.

    Args:
        workload: The workload, with known properties of its data.
        resources: Resources of a trial.
        examples: Sample configs of the space.
        mutations: Parameters that the scheduler changes in running trials; None if it changes none
            or no Ray cluster is connected.
    """

    config: SweepConfig
    workload: Workload
    resources: TrialResources
    max_concurrent_trials: int
    examples: tuple[dict[str, Any], ...]
    mutations: tuple[str, ...] | None = None


def plan_sweep(config: SweepConfig, *, base_dir: Path | None = None) -> SweepPlan:
    """Check a sweep on the present cluster as far as possible without training.

    Args:
        config: The sweep's settings.
        base_dir: Folder that a relative workload path starts from; the working directory by
            default.

    Raises:
        WorkloadError: The workload cannot be imported, or its data are invalid.
        InvalidSettingsError: A component rejects its settings.
        UnavailableResourcesError: No node can hold a trial.
    """
    base_dir = base_dir or Path.cwd()
    check_storage(config)
    workload = import_workload(config.workload, base_dir, config.data)
    make_scheduler(config)
    make_sampler(
        config.searcher.sampler,
        config.searcher.seed,
        space=config.space,
        num_objectives=len(config.objectives),
    )
    checked_tracking_uri(config)
    resources = config.resources or default_resources(config.parallelism)
    fitting = num_fitting(resources, config.parallelism)
    wanted = config.max_concurrent_trials or fitting
    rng = np.random.default_rng(config.seed)
    workload.check_data()
    return SweepPlan(
        config,
        workload,
        resources,
        min(wanted, fitting, config.budget.num_samples),
        tuple(config.space.sample(rng) for _ in range(3)),
        allowed_mutations(config, workload),
    )


def checked_tracking_uri(config: SweepConfig) -> str | None:
    """Return the tracking URI with expanded references; None if tracking is off.

    Raises:
        InvalidSettingsError: The URI is invalid.
    """
    if config.mlflow is None:
        return None
    uri = expand_references(config.mlflow.tracking_uri, "mlflow.tracking_uri")
    MLflowCallback(uri, config.mlflow.experiment_name)
    return uri
