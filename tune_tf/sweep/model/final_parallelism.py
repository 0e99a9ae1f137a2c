"""Parallelism and resources of a sweep's final model."""

from tune_tf.config import SweepConfig
from tune_tf.errors import InvalidSettingsError
from tune_tf.parallelism import Parallelism
from tune_tf.resources import TrialResources
from tune_tf.trainables.capacity import default_resources, largest_node


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
    parallelism = config.parallelism.single_model
    if num_replicas is None:
        if not parallelism.fills_node:
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
    if not parallelism.fills_node:
        return config.resources or default_resources(parallelism)
    on_gpus = _gpus_of_a_node(config) > 0
    cpus = int(largest_node(TrialResources(cpus=1)).get("CPU", 1))
    return TrialResources(
        cpus=max(1, cpus, 0 if on_gpus else parallelism.num_replicas),
        gpus=parallelism.num_replicas if on_gpus else 0,
    )


def _gpus_of_a_node(config: SweepConfig) -> int:
    """Return the largest GPU count of a node; 0 if the sweep requests none."""
    if config.resources is not None and not config.resources.gpus:
        return 0
    return int(largest_node(TrialResources(cpus=1, gpus=1)).get("GPU", 0))
