"""Benchmark of scaling candidates in rounds, interleaved with one device."""

import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import psutil
import ray

from tune_tf.errors import TuneTfError, WorkloadError
from tune_tf.estimate.scaling.candidates import ScalingCandidate
from tune_tf.estimate.scaling.measurement import Measurement
from tune_tf.estimate.scaling.probe import (
    ScalingProbe,
    TrainableClass,
    cpu_seconds,
    gpu_memory_bytes,
    machine_cpu_seconds,
)
from tune_tf.estimate.workload_sample import ScalingSample, read_notes, sample_workload
from tune_tf.parallelism import Mirrored, Parallelism
from tune_tf.resources import TrialResources
from tune_tf.trainables import trainable
from tune_tf.training.system_metrics import peak_memory_bytes
from tune_tf.workload import Workload


def group_by_capacity(
    needs: Sequence[Mapping[str, float]],
    room: Mapping[str, float],
    reference: Mapping[str, float],
) -> tuple[list[list[int]], list[int]]:
    """Group candidates that fit beside the reference, by the amounts of resources they need.

    Returns:
        Groups of indices, and the indices of candidates that do not fit beside the reference.
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


ProgressCallback = Callable[[str, float], None]
"""Called with a description of the current step and the share done, 0 to 1."""

_EXPECTED_BYTES = 1.2e9  # of a process with TensorFlow, without the model
_PROFILED_BATCHES = 8
_FEWEST_BATCHES = 8  # a quarter of the rows, or batches four times as large, are then two


@dataclass(frozen=True)
class Effort:
    """Length of a benchmark.

    Args:
        rounds: Measurements per candidate, at least 1.
        round_s: Seconds per measurement; an epoch that takes longer is finished.
        max_batches: Most batches of the original size that count as all data; reduced to what
            trains in about two rounds.
    """

    rounds: int = 5
    round_s: float = 1.0
    max_batches: int = 200


@dataclass(frozen=True)
class Subject:
    """Workload and config to measure, with the loop and the seed to train with."""

    workload: Workload
    config: Mapping[str, Any]
    loop: Any
    seed: int

    @property
    def batch_size(self) -> int:
        """Rows of a global batch."""
        return self.workload.global_batch_size(self.config)

    def made(
        self,
        sample: ScalingSample,
        parallelism: Parallelism,
        resources: TrialResources,
        **how: bool,
    ) -> TrainableClass:
        """Return a Trainable class for a sample of the workload."""
        part = sample_workload(self.workload, sample, **how)
        return trainable(part, parallelism, resources=resources, loop=self.loop, seed=self.seed)


@dataclass
class _Running:
    candidate: ScalingCandidate
    probe: ScalingProbe
    notes: "tempfile.TemporaryDirectory[str]"
    start_s: float
    batch_size: int
    rates: list[float] = field(default_factory=list)
    seconds: float = 0.0
    cpu_s: float = 0.0
    all_cpu_s: float = 0.0

    def forget(self) -> None:
        self.rates, self.seconds, self.cpu_s, self.all_cpu_s = [], 0.0, 0.0, 0.0

    @property
    def process_ids(self) -> list[int]:
        return list(read_notes(self.notes.name))

    @property
    def num_rows(self) -> int:
        return next(
            each["num_rows"] for each in read_notes(self.notes.name).values() if "num_rows" in each
        )

    def round(self, seconds: float) -> None:
        cpu_s, all_cpu_s = sum(map(cpu_seconds, self.process_ids)), machine_cpu_seconds()
        epochs, took = self.probe.round(seconds)
        self.rates.append(epochs * self.num_rows / took)
        self.seconds += took
        self.cpu_s += sum(map(cpu_seconds, self.process_ids)) - cpu_s
        self.all_cpu_s += machine_cpu_seconds() - all_cpu_s

    def end(self) -> None:
        self.probe.end()
        self.notes.cleanup()


class ScalingBenchmark:
    """Benchmark of candidates in interleaved rounds.

    ``on_progress`` is called with a description of the current step and the share done, 0 to 1.
    """

    def __init__(self, subject: Subject, effort: Effort, on_progress: ProgressCallback) -> None:
        self._subject = subject
        self._effort = effort
        self._on_progress = on_progress
        self._done = 0
        self._all = 1
        self._max_batches = effort.max_batches
        #: Rows of the workload's training data.
        self.total_rows = 0

    def measure(
        self, candidates: Sequence[ScalingCandidate], *, profile: bool = False
    ) -> tuple[list[Measurement], dict[str, bytes]]:
        """Measure candidates, the first of which is the reference, and optionally profile that.

        The reference is measured together with as many other candidates as fit into the cluster.
        They take turns: a process that waits takes no time from the others.

        Returns:
            A measurement of each candidate, in order, and the files of a TensorFlow profile of a
            few batches, by path within a log folder.

        Raises:
            TuneTfError: The reference cannot be measured.
        """
        reference, *others = candidates
        self._done, self._all = 0, len(candidates) * (1 + self._effort.rounds) + 1
        found: dict[ScalingCandidate, Measurement] = {}
        first = self._reference(reference)
        try:
            together, alone = group_by_capacity(
                list(map(_needs, others)), _room(), _needs(reference)
            )
            for wave in together or [[]]:
                found |= self._wave(first, [others[index] for index in wave])
            input_s = self._input_seconds(first, found.values())
            files = self._profile(first) if profile else {}
        finally:
            first.end()
        found[reference] = replace(found[reference], reference_rates=found[reference].rates)
        for index in alone:
            found |= self._wave(None, [others[index]], found[reference].rates)
        return [_with_input(found[each], input_s) for each in candidates], files

    def _profile(self, first: _Running) -> dict[str, bytes]:
        self._say("profiling a few batches", 0)
        candidate, size = first.candidate, first.batch_size
        sample = ScalingSample(size, size * _PROFILED_BATCHES, 1.0)
        made = self._subject.made(sample, candidate.parallelism, candidate.resources)
        return first.probe.profile(made)

    def _reference(self, reference: ScalingCandidate) -> _Running:
        """Start the reference; an error of it ends the benchmark."""
        try:
            return self._started(reference, calibrating=True)
        except ray.exceptions.RayError as error:
            raise WorkloadError(f"one replica on one device failed: {_text(error)}") from error

    def _wave(
        self,
        first: _Running | None,
        others: Sequence[ScalingCandidate],
        reference_rates: Sequence[float] = (),
    ) -> dict[ScalingCandidate, Measurement]:
        """Measure candidates, together with the reference if it runs."""
        found: dict[ScalingCandidate, Measurement] = {}
        running: list[_Running] = []
        try:
            for candidate in others:
                try:
                    running.append(self._started(candidate))
                except (TuneTfError, ray.exceptions.RayError) as error:
                    found[candidate] = Measurement(candidate, error=_text(error))
            measured = running if first is None else [first, *running]
            for each in measured:
                self._round(each, 0, found, needed=each is first)  # brings all to the same state
                each.forget()
            for number in range(self._effort.rounds):
                # Alternate the direction, so that no candidate always follows the same one.
                for each in measured[:: -1 if number % 2 else 1]:
                    self._say(f"round {number + 1}: {each.candidate.label}")
                    self._round(each, self._effort.round_s, found, needed=each is first)
            rates = reference_rates if first is None else first.rates
            for each in measured:
                if each.candidate not in found:
                    found[each.candidate] = _measured(each, rates)
        finally:
            for each in running:
                each.end()
        return found

    def _round(
        self,
        running: _Running,
        seconds: float,
        found: dict[ScalingCandidate, Measurement],
        *,
        needed: bool,
    ) -> None:
        """Train for a number of seconds; record an error unless the candidate is needed."""
        if running.candidate in found:
            return
        try:
            running.round(seconds)
        except (TuneTfError, ray.exceptions.RayError) as error:
            if needed:
                raise
            found[running.candidate] = Measurement(running.candidate, error=_text(error))

    def _started(self, candidate: ScalingCandidate, *, calibrating: bool = False) -> _Running:
        self._say(f"starting {candidate.label} ({candidate.family})")
        subject = self._subject
        batch_size = round(subject.batch_size * candidate.batch_scale)
        notes = tempfile.TemporaryDirectory(prefix="tune-tf-scale-")
        spread = candidate.parallelism, candidate.resources
        few = ScalingSample(batch_size, batch_size * _FEWEST_BATCHES, candidate.data_fraction)
        begun = time.perf_counter()
        probe = None
        try:
            probe = ScalingProbe(subject.made(few, *spread), dict(subject.config))
            if calibrating:
                epoch_s = probe.epoch_of(subject.made(few, *spread), self._effort.round_s / 4)
                begun += max(epoch_s, self._effort.round_s / 4)
                self._max_batches = self._bounded(epoch_s / _FEWEST_BATCHES)
            most = subject.batch_size * self._max_batches
            sample = ScalingSample(batch_size, most, candidate.data_fraction, notes.name)
            probe.start(subject.made(sample, *spread))
            notes_of = read_notes(notes.name).values()
            self.total_rows = max(each.get("total_rows", 0) for each in notes_of)
        except BaseException:
            if probe is not None:
                probe.end()
            notes.cleanup()
            raise
        start_s = time.perf_counter() - begun
        return _Running(candidate, probe, notes, start_s, batch_size)

    def _bounded(self, batch_s: float) -> int:
        """Return the number of batches of an epoch that takes about two rounds."""
        fitting = int(2 * self._effort.round_s / max(batch_s, 1e-6))
        return max(_FEWEST_BATCHES, min(self._effort.max_batches, fitting))

    def _input_seconds(
        self, first: _Running, found: Iterable[Measurement]
    ) -> dict[tuple[int, int], float]:
        """Return seconds per epoch without a model, by batch size and rows of a replica."""
        self._say("the loop without a model")
        if self._subject.loop != "graph":
            return {}
        seconds: dict[tuple[int, int], float] = {}
        reference = first.candidate
        for each in found:
            part = _part(each)
            if each.error or part in seconds:
                continue
            made = self._subject.made(
                ScalingSample(part[0], part[1], 1.0),
                Mirrored(),
                reference.resources,
                input_only=True,
            )
            seconds[part] = first.probe.epoch_of(made, self._effort.round_s / 2)
        return seconds

    def _say(self, what: str, steps: int = 1) -> None:
        self._on_progress(what, min(1.0, self._done / self._all))
        self._done += steps


def _needs(candidate: ScalingCandidate) -> dict[str, float]:
    num_processes = candidate.parallelism.num_workers
    return candidate.resources.bundle | {"bytes": _EXPECTED_BYTES * num_processes}


def _room() -> dict[str, float]:
    free = ray.available_resources()
    known = {kind: free.get(kind, 0.0) for kind in ("CPU", "GPU")}
    return known | {"bytes": float(psutil.virtual_memory().available)}


def _measured(running: _Running, reference_rates: Sequence[float]) -> Measurement:
    process_ids = running.process_ids
    memory = [peak_memory_bytes(each) for each in process_ids]
    return Measurement(
        running.candidate,
        batch_size=running.batch_size,
        num_rows=running.num_rows,
        rates=tuple(running.rates),
        reference_rates=tuple(reference_rates),
        start_s=running.start_s,
        memory_bytes=sum(each for each in memory if each is not None) or None,
        gpu_memory_bytes=gpu_memory_bytes(set(process_ids)),
        busy_cores=running.cpu_s / running.seconds,
        other_cores=max(0.0, running.all_cpu_s - running.cpu_s) / running.seconds,
    )


def _part(measurement: Measurement) -> tuple[int, int]:
    """Return a replica's rows of a batch and of an epoch."""
    num = measurement.candidate.parallelism.num_replicas
    return max(1, measurement.batch_size // num), max(1, measurement.num_rows // num)


def _with_input(measurement: Measurement, input_s: Mapping[tuple[int, int], float]) -> Measurement:
    if measurement.error or _part(measurement) not in input_s:
        return measurement
    epoch_s = measurement.num_rows / measurement.rows_per_s
    return replace(measurement, input_share=min(1.0, input_s[_part(measurement)] / epoch_s))


def _text(error: Exception) -> str:
    """Format an error as one line."""
    cause = getattr(error, "cause", None) or error
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    text = lines[0] if lines else type(cause).__name__
    if isinstance(cause, TuneTfError):
        return text
    if isinstance(error, ray.exceptions.RayActorError):
        # For an error in an actor's constructor, Ray keeps only the traceback text.
        text = lines[-1] if lines else "the process died"
    return f"{type(cause).__name__}: {text}"
