"""Which candidates live at a time."""

from collections.abc import Mapping, Sequence


def waves(
    needs: Sequence[Mapping[str, float]],
    room: Mapping[str, float],
    reference: Mapping[str, float],
) -> tuple[list[list[int]], list[int]]:
    """Return which candidates live together with the reference, and which have to be alone.

    Args:
        needs: What each takes, by kind of resource.
        room: What there is.
        reference: What the reference takes.

    Returns:
        Groups of indices, and the indices of those that do not fit beside the reference.
    """
    together: list[list[int]] = []
    alone: list[int] = []
    left: dict[str, float] = {}
    empty = {kind: count - reference.get(kind, 0) for kind, count in room.items()}
    for index, need in enumerate(needs):
        if not _holds(empty, need):
            alone.append(index)
            continue
        if not together or not _holds(left, need):
            together.append([])
            left = dict(empty)
        together[-1].append(index)
        left = {kind: count - need.get(kind, 0) for kind, count in left.items()}
    return together, alone


def _holds(room: Mapping[str, float], need: Mapping[str, float]) -> bool:
    return all(room.get(kind, 0) >= count for kind, count in need.items())
