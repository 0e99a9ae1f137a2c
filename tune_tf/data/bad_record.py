"""A record that could not be prepared."""

from dataclasses import dataclass


@dataclass(frozen=True)
class BadRecord:
    """A record that gives no row, or one unlike the others.

    Args:
        index: Number of the record, from 0.
        record: Its ``str``, such as a path; long ones are cut.
        error: What went wrong, ``"Type: message"``.
    """

    index: int
    record: str
    error: str

    def __str__(self) -> str:
        """Return ``record 3 (images/a.jpg): OSError: cannot identify image file``."""
        return f"record {self.index} ({self.record}): {self.error}"
