"""Summary of a benchmark: a table for people, one JSON line for programs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Target:
    """Target of a measured value.

    Args:
        bound: At least or at most this, itself included.
        kind: Which of the two.
    """

    bound: float
    kind: Literal["at least", "at most"] = "at least"

    def is_met(self, value: float) -> bool:
        """Return whether a value meets the target."""
        return value >= self.bound if self.kind == "at least" else value <= self.bound

    def __str__(self) -> str:
        """Return the kind and the bound."""
        return f"{self.kind} {self.bound:g}"


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print an aligned table."""
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    for row in (header, ["-" * width for width in widths], *rows):
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )


def print_summary(
    benchmark: str,
    values: Mapping[str, float | None],
    targets: Mapping[str, Target],
    **notes: Any,
) -> None:
    """Print targets and measured values, then all of it as one JSON line.

    Args:
        benchmark: Its name.
        values: Measured values by name; None was not measured this time.
        targets: Those that ought to hold, by name of the value.
        notes: What else a program may want to know, as JSON can hold it.
    """
    measured = {name: value for name, value in values.items() if value is not None}
    judged = {name: target for name, target in targets.items() if name in measured}
    missed = [name for name, target in judged.items() if not target.is_met(measured[name])]
    rows = [
        (name, f"{measured[name]:.3g}", str(target), "MISSED" if name in missed else "met")
        for name, target in judged.items()
    ]
    if rows:
        print()
        print_table(("value", "measured", "target", ""), rows)
    print()
    summary = {
        "benchmark": benchmark,
        "ratios": {name: float(f"{value:.4g}") for name, value in measured.items()},
        "missed": missed,
        "unmeasured": [name for name in targets if name not in measured],
    }
    print(json.dumps(summary | notes), flush=True)
