"""Parallelism and resources of a sweep's final model."""

from dataclasses import replace

from tune_tf.config import SweepConfig
from tune_tf.errors import InvalidSettingsError
from tune_tf.parallelism import Hybrid, Mirrored, ModelParallel, MultiWorker, Parallelism, Subtasks
from tune_tf.resources import TrialResources
from tune_tf.trainables.capacity import largest_node
from tune_tf.trainables.factory import default_resources


def final_parallelism(
    config: SweepConfig, num_replicas: int | None, batch_size: int
) -> Parallelism:
    """Return the parallelism of the final model.

    Folds and ensembles become one model of all rows.

    Args:
        config: The sweep's settings.
        num_replicas: Model replicas; None for all GPUs of a node, or as in the sweep without GPUs.
        batch_size: Global batch size; each replica needs at least one row.

    Raises:
        InvalidSettingsError: The sweep's kind of parallelism does not support this number.
    """
    spread = config.parallelism
    if isinstance(spread, Subtasks):
        spread = Mirrored()
    if num_replicas is None:
        gpus = _gpus_of_a_node(config) if isinstance(spread, Mirrored) else 0
        wanted = max(spread.num_replicas, min(gpus, batch_size))
        return replace(spread, num_replicas=wanted) if isinstance(spread, Mirrored) else spread
    if isinstance(spread, Mirrored):
        return replace(spread, num_replicas=num_replicas, max_replicas=None)
    if isinstance(spread, Hybrid):
        return replace(spread, num_replicas=num_replicas)
    if isinstance(spread, ModelParallel):
        if num_replicas == 1:
            return spread
        return Hybrid(num_replicas, spread.num_stages, spread.micro_batches)
    if isinstance(spread, MultiWorker) and num_replicas % spread.replicas_per_worker == 0:
        return replace(
            spread, num_workers=num_replicas // spread.replicas_per_worker, min_workers=None
        )
    raise InvalidSettingsError(
        [
            f"the trials of {config.name} have parallelism of kind {spread.kind!r}, which cannot "
            f"be scaled to {num_replicas} replica(s): leave out --replicas"
        ]
    )


def final_resources(config: SweepConfig, spread: Parallelism) -> TrialResources:
    """Return the resources of the final model: all that it can use of one node."""
    if not isinstance(spread, Mirrored):
        return config.resources or default_resources(spread)
    on_gpus = _gpus_of_a_node(config) > 0
    cpus = int(largest_node(TrialResources(cpus=1)).get("CPU", 1))
    return TrialResources(
        cpus=max(1, cpus, 0 if on_gpus else spread.num_replicas),
        gpus=spread.num_replicas if on_gpus else 0,
    )


def _gpus_of_a_node(config: SweepConfig) -> int:
    """Return the largest GPU count of a node; 0 if the sweep requests none."""
    if config.resources is not None and not config.resources.gpus:
        return 0
    return int(largest_node(TrialResources(cpus=1, gpus=1)).get("GPU", 0))
