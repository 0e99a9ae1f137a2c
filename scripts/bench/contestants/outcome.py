"""Command-line job and JSON outcome of a contestant's process."""

import argparse
import dataclasses
import json
import time
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Job:
    """Size of a sweep and its folder.

    Args:
        num_samples: Trials.
        max_epochs: Epochs of a trial at most.
        folder: An empty folder.
        seed: Of the searcher.
        variant: What else a contestant can be asked for.
    """

    num_samples: int
    max_epochs: int
    folder: Path
    seed: int
    variant: str

    @classmethod
    def from_arguments(cls) -> "Job":
        """Return the job on the command line."""
        parser = argparse.ArgumentParser()
        parser.add_argument("--num-samples", type=int, required=True)
        parser.add_argument("--max-epochs", type=int, required=True)
        parser.add_argument("--folder", type=Path, required=True)
        parser.add_argument("--seed", type=int, required=True)
        parser.add_argument("--variant", default="")
        return cls(**vars(parser.parse_args()))

    @property
    def tracking_uri(self) -> str:
        """MLflow URI of a new SQLite file."""
        return f"sqlite:///{self.folder.resolve() / 'mlflow.db'}"


@dataclass(frozen=True)
class SweepOutcome:
    """Outcome of a sweep.

    Args:
        wall_s: Seconds from the start of the clock to the last trial's end, results at hand.
        num_trials: Trials that ran.
        num_epochs: Epochs that all trials trained in sum.
        best_val_accuracy: The best that any trial reported at any epoch.
        num_processes: Processes that the trials ran in.
        marks_s: Moments on the way, in seconds from the start of the clock.
    """

    wall_s: float
    num_trials: int
    num_epochs: int
    best_val_accuracy: float
    num_processes: int = 1
    marks_s: dict[str, float] = field(default_factory=dict)

    @property
    def epoch_s(self) -> float:
        """Seconds of wall time for each trained epoch."""
        return self.wall_s / self.num_epochs

    def print(self) -> None:
        """Print the outcome as a JSON line."""
        print(json.dumps(dataclasses.asdict(self)), flush=True)

    @classmethod
    def parse(cls, output: str) -> "SweepOutcome":
        """Return the outcome on the last line of a contestant's output."""
        return cls(**json.loads(output.strip().splitlines()[-1]))


class Clock:
    """Clock that marks events.

    Args:
        started: The moment of zero, of ``time.perf_counter``; now by default.
    """

    def __init__(self, started: float | None = None) -> None:
        self._started = time.perf_counter() if started is None else started
        self.marks_s: dict[str, float] = {}

    def mark(self, name: str, *, last: bool = False) -> None:
        """Record when an event happened, the first or the last time."""
        if last or name not in self.marks_s:
            self.marks_s[name] = self.elapsed_s()

    def elapsed_s(self) -> float:
        """Return the elapsed seconds."""
        return time.perf_counter() - self._started
