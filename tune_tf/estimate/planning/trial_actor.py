"""Ray actor that runs trials one after another, like a reused actor of Tune."""

import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ray import tune

from tune_tf.estimate.scaling.probe import TrainableClass, gpu_memory_bytes
from tune_tf.estimate.workload_sample import TRAINS, read_notes
from tune_tf.training.system_metrics import peak_memory_bytes


@dataclass(frozen=True)
class TrialTiming:
    """Timing of one config in one process.

    Args:
        start_s: Seconds until training: building the model, plus startup in a fresh process.
        first_s: Seconds of the first iteration, which may include tracing.
        epochs_s: Seconds of each further iteration.
    """

    start_s: float
    first_s: float
    epochs_s: tuple[float, ...]
    save_s: float
    checkpoint_bytes: int

    @property
    def epoch_s(self) -> float:
        """Mean seconds of the further iterations."""
        return sum(self.epochs_s) / len(self.epochs_s)


@dataclass(frozen=True)
class PeakMemory:
    """Peak memory of a trial's processes; ``gpu_bytes`` is None without GPUs."""

    host_bytes: int
    gpu_bytes: int | None


@dataclass(frozen=True)
class TrialUsage:
    """Memory and rows of a trial's processes.

    Args:
        num_rows: Training rows used; 0 if unknown.
        left_out_bytes: Bytes of the data that a real trial holds but the sample omits.
    """

    memory: PeakMemory
    num_rows: int
    total_rows: int
    left_out_bytes: int


class TrialActor:
    """Ray actor that drives a Trainable step by step, so that several can run in lockstep.

    ``notes`` is a folder for the notes of its processes, created on this node.
    """

    def __init__(self, made: TrainableClass, notes: str) -> None:
        self._made = made
        self._notes = notes
        self._trainable: tune.Trainable | None = None
        Path(notes).mkdir(parents=True, exist_ok=True)

    def begin(self, config: dict[str, Any]) -> float:
        """Start a trial in this process; return the seconds it took."""
        begun = time.perf_counter()
        if self._trainable is None:
            self._trainable = self._made(config=config)
        else:
            self._trainable.reset_config(config)
        return time.perf_counter() - begun

    def first(self) -> float:
        """Train the first iteration; return the seconds it took."""
        return self._timed()

    def further(self, seconds: float) -> tuple[float, ...]:
        """Train for the given seconds, at least one iteration; return the seconds of each."""
        begun = time.perf_counter()
        taken = [self._timed()]
        while time.perf_counter() - begun < seconds:
            taken.append(self._timed())
        return tuple(taken)

    def save(self) -> tuple[float, int]:
        """Save a checkpoint; return the seconds it took, and its bytes."""
        begun = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            self._running.save_checkpoint(folder)
            took = time.perf_counter() - begun
            files = (path for path in Path(folder).rglob("*") if path.is_file())
            return took, sum(path.stat().st_size for path in files)

    def noted(self) -> "TrialUsage":
        """Return memory and rows of the trial's processes on this node."""
        notes = read_notes(self._notes)
        process_ids = {process_id for process_id, note in notes.items() if TRAINS in note}
        peaks = (peak_memory_bytes(process_id) for process_id in process_ids)
        found: dict[str, int] = {}
        for note in notes.values():
            found |= note
        return TrialUsage(
            PeakMemory(sum(filter(None, peaks)), gpu_memory_bytes(process_ids)),
            num_rows=found.get("num_rows", 0),
            total_rows=found.get("total_rows", 0),
            left_out_bytes=found.get("left_out_bytes", 0),
        )

    def stop(self) -> None:
        """Stop the trial and delete the notes."""
        if self._trainable is not None:
            self._trainable.stop()
        shutil.rmtree(self._notes, ignore_errors=True)

    @property
    def _running(self) -> tune.Trainable:
        if self._trainable is None:
            raise RuntimeError("no trial was started")
        return self._trainable

    def _timed(self) -> float:
        begun = time.perf_counter()
        self._running.train()
        return time.perf_counter() - begun
