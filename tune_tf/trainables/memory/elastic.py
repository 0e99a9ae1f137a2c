"""Elastic number of replicas for trials whose resources grow while they run."""

from dataclasses import replace

from tune_tf.parallelism import Mirrored
from tune_tf.resources import TrialResources


def grown(
    parallelism: Mirrored, base: TrialResources, reserved: TrialResources, *, batch_size: int
) -> Mirrored:
    """Return the parallelism of a trial for its reserved resources, with unchanged numbers.

    A replica uses one GPU, or as many whole CPUs as in ``base``, the declared resources; the
    remaining CPUs serve as threads. The number of replicas is at least the declared one, at most
    the batch size and ``max_replicas``, and with ``uneven="refuse"`` a divisor of the batch size.

    A trial declared with one replica keeps the numbers of one device: batch normalization is
    synchronized over all replicas. A trial declared with several keeps its setting, so without
    synchronization its numbers depend on the number of replicas.
    """
    declared = parallelism.num_replicas
    room = int(reserved.gpus) if reserved.gpus else declared * (reserved.cpus // base.cpus)
    most = min(room, batch_size, parallelism.max_replicas or room)
    divides = parallelism.uneven == "refuse"
    counts = (num for num in range(most, declared, -1) if not (divides and batch_size % num))
    num_replicas = next(counts, declared)
    if num_replicas == declared:
        return parallelism
    return replace(
        parallelism,
        num_replicas=num_replicas,
        synchronized_batch_norm=parallelism.synchronized_batch_norm or declared == 1,
    )
