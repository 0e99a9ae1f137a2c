"""What a writer has taken of one run and not written yet."""

from collections import deque
from dataclasses import dataclass, field

from tune_tf.tracking.entry import Entry


@dataclass
class Held:
    """What waits to be written to one run.

    Args:
        due: When to write it, on the monotonic clock, in seconds.
        first: Number of the first entry that was put into it.
        last: Number of the last one.
        entries: What is left to be written, in order.
        count: How many entries were put into it.
        weight: How much room it takes, in reports.
        attempts: How often writing has failed.
        not_before: When it may be written at the earliest, whoever waits for it.
    """

    due: float
    first: int
    last: int = 0
    entries: deque[Entry] = field(default_factory=deque)
    count: int = 0
    weight: int = 0
    attempts: int = 0
    not_before: float = 0.0

    def take(self, number: int, entry: Entry) -> None:
        """Take in what came later."""
        self.last = number
        self.count += 1
        self.weight += max(1, len(entry.reports))
        if self.entries and not entry.fresh:
            self.entries[-1].merge(entry)
        else:  # a trial made anew under the same id is not the one before
            self.entries.append(entry)

    @property
    def size(self) -> int:
        """How many values there are to write."""
        return sum(entry.size for entry in self.entries)

    @property
    def settles(self) -> bool:
        """Whether it ends the runs that the others have not ended."""
        return any(entry.trials is not None for entry in self.entries)

    @property
    def only_artifacts(self) -> bool:
        """Whether nothing but artifacts is left."""
        return all(entry.size == len(entry.texts) + len(entry.files) for entry in self.entries)
