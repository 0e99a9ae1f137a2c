"""Resources of a trial that is retried after it ran out of memory."""

from typing import Any

from ray.tune import PlacementGroupFactory

from tune_tf.parallelism import Parallelism


class RetryResources(PlacementGroupFactory):
    """Resource request that also carries a trial's number of micro-batches.

    It reaches the trial's process and Tune's experiment snapshot. ``num_retries`` counts the
    trial's out-of-memory retries.
    """

    def __init__(
        self,
        bundles: list[dict[str, float]],
        strategy: str = "PACK",
        *,
        micro_batches: int = 1,
        num_retries: int = 1,
    ) -> None:
        super().__init__(bundles, strategy)
        self.micro_batches = micro_batches
        self.num_retries = num_retries

    def __eq__(self, other: object) -> bool:
        """Compare micro-batches too: an actor cannot be reused for another number of them."""
        micro_batches = getattr(other, "micro_batches", None)
        return bool(super().__eq__(other)) and micro_batches == self.micro_batches

    def __hash__(self) -> int:
        """Return Ray's hash."""
        return int(super().__hash__())


def increase_memory(
    reserved: PlacementGroupFactory, parallelism: Parallelism, *, in_micro_batches: bool
) -> RetryResources | None:
    """Return the next resource request of a trial that ran out of memory; None if nothing helps.

    A fraction of a GPU is doubled for each process, up to the whole card; any other trial doubles
    its micro-batches, with ``in_micro_batches``.
    """
    bundles = reserved.bundles
    head: list[dict[str, float]] = [{}] if reserved.head_bundle_is_empty else []
    number = micro_batches_of(reserved, parallelism)
    if 0 < bundles[0].get("GPU", 0) < 1:
        for bundle in bundles:
            if "GPU" in bundle:
                bundle["GPU"] = min(1.0, 2 * bundle["GPU"])
    elif in_micro_batches:
        number *= 2
    else:
        return None
    return RetryResources(
        [*head, *bundles],
        reserved.strategy,
        micro_batches=number,
        num_retries=getattr(reserved, "num_retries", 0) + 1,
    )


def with_bundles(
    reserved: PlacementGroupFactory, bundles: list[dict[str, float]]
) -> PlacementGroupFactory:
    """Return a resource request with other bundles, and the retries of the trial so far."""
    if not isinstance(reserved, RetryResources):
        return PlacementGroupFactory(bundles, reserved.strategy)
    return RetryResources(
        bundles,
        reserved.strategy,
        micro_batches=reserved.micro_batches,
        num_retries=reserved.num_retries,
    )


def micro_batches_of(reserved: Any, parallelism: Parallelism) -> int:
    """Return the number of micro-batches of a trial with these resources."""
    return max(getattr(reserved, "micro_batches", 1), parallelism.micro_batches)
