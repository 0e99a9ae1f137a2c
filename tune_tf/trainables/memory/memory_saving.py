"""What a trial reserves after it ran out of memory."""

from typing import Any

from ray.tune import PlacementGroupFactory

from tune_tf.parallelism import Parallelism


class MemorySaving(PlacementGroupFactory):
    """A reservation that also says how a trial makes do with it.

    It travels with the trial: to its process, and into Tune's snapshot.

    Args:
        bundles: As Ray takes them.
        strategy: As Ray takes it.
        micro_batches: Pieces in which a replica takes its part of a batch.
        num_retries: How often the trial was started again for want of memory.
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
        """Compare the pieces too: an actor that takes whole batches cannot be reused for this."""
        pieces = getattr(other, "micro_batches", None)
        return bool(super().__eq__(other)) and pieces == self.micro_batches

    def __hash__(self) -> int:
        """Return Ray's own."""
        return int(super().__hash__())


def num_retries_of(reserved: PlacementGroupFactory) -> int:
    """Return how often a trial was started again for want of memory."""
    return reserved.num_retries if isinstance(reserved, MemorySaving) else 0


def with_more_memory(
    reserved: PlacementGroupFactory, parallelism: Parallelism, *, in_pieces: bool
) -> MemorySaving | None:
    """Return what a trial that ran out of memory reserves next; None if nothing helps.

    A share of one GPU is doubled for each process, up to the whole card; any other trial takes its
    batches in twice as many pieces.

    Args:
        reserved: What it had.
        parallelism: How trials are spread.
        in_pieces: Whether it can take a batch in pieces.
    """
    bundles = reserved.bundles
    head: list[dict[str, float]] = [{}] if reserved.head_bundle_is_empty else []
    pieces = micro_batches_of(reserved, parallelism)
    if 0 < bundles[0].get("GPU", 0) < 1:
        for bundle in bundles:
            bundle["GPU"] = min(1.0, 2 * bundle["GPU"])
    elif in_pieces:
        pieces *= 2
    else:
        return None
    return MemorySaving(
        [*head, *bundles],
        reserved.strategy,
        micro_batches=pieces,
        num_retries=num_retries_of(reserved) + 1,
    )


def micro_batches_of(reserved: Any, parallelism: Parallelism) -> int:
    """Return in how many pieces a trial with this reservation takes its batches."""
    own = reserved.micro_batches if isinstance(reserved, MemorySaving) else 1
    return max(own, parallelism.micro_batches)
