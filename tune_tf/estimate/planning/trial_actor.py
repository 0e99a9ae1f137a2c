"""A process that runs trials one after another, as Tune makes a reused actor do it."""

import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ray import tune

from tune_tf.estimate.scaling.probe import TrainableClass, gpu_memory_bytes
from tune_tf.estimate.workload_sample import TRAINS, read_notes
from tune_tf.training.peak_memory import peak_memory_bytes


@dataclass(frozen=True)
class Turn:
    """What came of one config in one process.

    Args:
        start_s: Seconds until it could train: building the model, in a fresh process all else too.
        first_s: Seconds of its first iteration, which may be traced.
        epochs_s: Seconds of each further one.
        save_s: Seconds that its checkpoint took.
        checkpoint_bytes: Size of the checkpoint.
    """

    start_s: float
    first_s: float
    epochs_s: tuple[float, ...]
    save_s: float
    checkpoint_bytes: int

    @property
    def epoch_s(self) -> float:
        """Mean of the further iterations."""
        return sum(self.epochs_s) / len(self.epochs_s)


@dataclass(frozen=True)
class Memory:
    """What the processes of a trial have taken at most.

    Args:
        host_bytes: Host memory.
        gpu_bytes: GPU memory; None without GPUs.
    """

    host_bytes: int
    gpu_bytes: int | None


@dataclass(frozen=True)
class Noted:
    """What the processes of a trial know of themselves.

    Args:
        memory: What they have taken at most.
        num_rows: Training rows that were trained; 0 where they have no number.
        total_rows: Training rows that there are.
        left_out_bytes: Of data that a trial holds, and that was left out.
    """

    memory: Memory
    num_rows: int
    total_rows: int
    left_out_bytes: int


class TrialActor:
    """Drives a Trainable by hand; each step waits for others to be asked for it at the same time.

    Args:
        made: The Trainable.
        notes: Folder in which its processes leave their ids; made on the node of this one.
    """

    def __init__(self, made: TrainableClass, notes: str) -> None:
        self._made = made
        self._notes = notes
        self._trainable: tune.Trainable | None = None
        Path(notes).mkdir(parents=True, exist_ok=True)

    def begin(self, config: dict[str, Any]) -> float:
        """Begin a trial, the first one in this process or the next; return the seconds it took."""
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
        """Train for a while, at least one iteration; return the seconds of each."""
        begun = time.perf_counter()
        taken = [self._timed()]
        while time.perf_counter() - begun < seconds:
            taken.append(self._timed())
        return tuple(taken)

    def save(self) -> tuple[float, int]:
        """Write a checkpoint; return the seconds it took, and its size."""
        begun = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            self._running.save_checkpoint(folder)
            took = time.perf_counter() - begun
            files = (path for path in Path(folder).rglob("*") if path.is_file())
            return took, sum(path.stat().st_size for path in files)

    def noted(self) -> "Noted":
        """Return what the processes of the trial on this node have told and taken."""
        notes = read_notes(self._notes)
        process_ids = {process_id for process_id, told in notes.items() if TRAINS in told}
        peaks = (peak_memory_bytes(process_id) for process_id in process_ids)
        facts: dict[str, int] = {}
        for told in notes.values():
            facts |= told
        return Noted(
            Memory(sum(filter(None, peaks)), gpu_memory_bytes(process_ids)),
            num_rows=facts.get("num_rows", 0),
            total_rows=facts.get("total_rows", 0),
            left_out_bytes=facts.get("left_out_bytes", 0),
        )

    def stop(self) -> None:
        """End the trial."""
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
