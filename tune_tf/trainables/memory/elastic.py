"""More replicas for a trial that was given more devices while it runs."""

from dataclasses import replace

from tune_tf.parallelism import Mirrored
from tune_tf.resources import TrialResources


def grown(
    parallelism: Mirrored, base: TrialResources, reserved: TrialResources, *, batch_size: int
) -> Mirrored:
    """Return how a trial is spread over what it has now, with the numbers that it had before.

    A replica uses one GPU, or as many whole CPUs as at first; what is left over goes to threads.
    There are never fewer replicas than declared, and never more than a batch has rows or
    ``max_replicas`` allows. With ``uneven="refuse"`` their number divides the batch.

    A trial that began as one device stays so in its numbers: all its replicas normalise by the rows
    of the whole batch. One that was declared with several keeps its own way, by which the numbers
    of plain BatchNormalization depend on how many there are.

    Args:
        parallelism: As declared.
        base: What a trial reserves at first.
        reserved: What this one has reserved now.
        batch_size: Rows of its global batch.
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
