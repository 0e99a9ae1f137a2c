"""Benchmark of scaling candidates in rounds, interleaved with one device."""

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import psutil
import ray

from tune_tf.errors import TuneTfError, WorkloadError, first_line
from tune_tf.estimate.sample_process import (
    EpochTimings,
    ProgressCallback,
    SampleProcess,
    TrainableClass,
    new_counts_folder,
)
from tune_tf.estimate.scaling.candidates import Measurement, ScalingCandidate
from tune_tf.estimate.workload_sample import ScalingSample, sample_workload
from tune_tf.outcome_rules import error_cause
from tune_tf.parallelism import Mirrored, Parallelism
from tune_tf.resources import TrialResources
from tune_tf.trainables import trainable
from tune_tf.workload import Workload

_EXPECTED_BYTES = 1.2e9  # of a process with TensorFlow, without the model
_PROFILED_BATCHES = 8
_MIN_BATCHES = 8  # a quarter of the rows, or batches four times as large, are then two


@dataclass(frozen=True)
class Effort:
    """Length of a benchmark: the number and length of the measurements of a candidate.

    At most ``max_batches`` of the original size count as all data; fewer if two rounds train fewer.
    """

    rounds: int = 5
    round_s: float = 1.0
    max_batches: int = 200


@dataclass
class _RunningCandidate:
    candidate: ScalingCandidate
    process: SampleProcess
    batch_size: int
    num_rows: int
    start_s: float
    rounds: list[EpochTimings] = field(default_factory=list)


@dataclass
class ScalingBenchmark:
    """Benchmark of candidates in interleaved rounds.

    ``loop`` is that of an epoch, as in the sweep file; ``total_rows`` is known once measured.
    """

    workload: Workload
    config: dict[str, Any]
    loop: Any
    seed: int
    effort: Effort
    on_progress: ProgressCallback
    total_rows: int = field(default=0, init=False)
    _max_batches: int | None = field(default=None, init=False)
    _done: int = field(default=0, init=False)
    _all: int = field(default=1, init=False)

    def measure(
        self, candidates: Sequence[ScalingCandidate], *, profile: bool = False
    ) -> tuple[list[Measurement], dict[str, bytes]]:
        """Measure candidates, the first of which is the reference, and optionally profile that.

        The reference is measured together with as many other candidates as fit into the cluster.
        They take turns: a process that waits takes no time from the others. The second result are
        the files of a TensorFlow profile of a few batches, by path within a log folder.

        Raises:
            TuneTfError: The reference cannot be measured.
        """
        reference, *others = candidates
        self._done, self._all = 0, len(candidates) * (1 + self.effort.rounds) + 1
        measurements: dict[ScalingCandidate, Measurement] = {}
        try:
            baseline = self._start(reference)
        except ray.exceptions.RayError as error:
            raise WorkloadError(
                f"one replica on one device failed: {_error_text(error)}"
            ) from error
        try:
            together, alone = group_by_capacity(
                list(map(_needed_resources, others)),
                _free_resources(),
                _needed_resources(reference),
            )
            for group in together or [[]]:
                measurements |= self._measure_group(baseline, [others[index] for index in group])
            input_s = self._input_seconds(baseline, measurements.values())
            files = self._profile(baseline) if profile else {}
        finally:
            baseline.process.end()
        for index in alone:
            measurements |= self._measure_group(
                None, [others[index]], measurements[reference].rates
            )
        return [_with_input_share(measurements[each], input_s) for each in candidates], files

    def _profile(self, baseline: _RunningCandidate) -> dict[str, bytes]:
        self._report("profiling a few batches", 0)
        sample = ScalingSample(baseline.batch_size, baseline.batch_size * _PROFILED_BATCHES, 1.0)
        profiled = self._trainable(
            sample, baseline.candidate.parallelism, baseline.candidate.resources
        )
        files: dict[str, bytes] = baseline.process.call("profile", profiled, self.config)
        return files

    def _measure_group(
        self,
        baseline: _RunningCandidate | None,
        others: Sequence[ScalingCandidate],
        reference_rates: tuple[float, ...] = (),
    ) -> dict[ScalingCandidate, Measurement]:
        """Measure candidates, together with the reference if it runs."""
        measurements: dict[ScalingCandidate, Measurement] = {}
        running: list[_RunningCandidate] = []
        try:
            for candidate in others:
                with _record_error(candidate, measurements, None):
                    running.append(self._start(candidate))
            measured = running if baseline is None else [baseline, *running]
            self._run_rounds(measured, baseline, measurements)
            if baseline is not None:
                reference_rates = _rates(baseline)
            for each in measured:
                if each.candidate not in measurements:
                    with _record_error(each.candidate, measurements, baseline):
                        measurements[each.candidate] = _to_measurement(each, reference_rates)
        finally:
            for each in running:
                each.process.end()
        return measurements

    def _run_rounds(
        self,
        measured: Sequence[_RunningCandidate],
        baseline: _RunningCandidate | None,
        measurements: dict[ScalingCandidate, Measurement],
    ) -> None:
        """Train in turn; round 0 brings all to the same state."""
        for number in range(1 + self.effort.rounds):
            # Alternate the direction, so that no candidate always follows the same one.
            for each in measured[:: -1 if number and number % 2 == 0 else 1]:
                if each.candidate in measurements:
                    continue
                if number:
                    self._report(f"round {number}: {each.candidate.label}")
                with _record_error(each.candidate, measurements, baseline):
                    timings = each.process.call("train", self.effort.round_s if number else 0.0)
                    each.rounds = [*each.rounds, timings] if number else []

    def _start(self, candidate: ScalingCandidate) -> _RunningCandidate:
        """Start a candidate; the first one also decides on how many rows all are measured."""
        self._report(f"starting {candidate.label} ({candidate.family})")
        config, round_s = self.config, self.effort.round_s
        own_batch_size = self.workload.global_batch_size(config)
        batch_size = round(own_batch_size * candidate.batch_scale)
        folder = new_counts_folder()

        def sampled(max_rows: int, counts_folder: str | None = None) -> TrainableClass:
            sample = ScalingSample(batch_size, max_rows, candidate.data_fraction, counts_folder)
            return self._trainable(sample, candidate.parallelism, candidate.resources)

        start = time.perf_counter()
        smallest = sampled(batch_size * _MIN_BATCHES)
        process = SampleProcess(smallest, config, folder)
        try:
            if self._max_batches is None:
                epoch_s = process.call("time_other", smallest, config, round_s / 4)
                start += max(epoch_s, round_s / 4)
                # As many batches as train in about two rounds.
                num_batches = int(2 * round_s / max(epoch_s / _MIN_BATCHES, 1e-6))
                self._max_batches = max(_MIN_BATCHES, min(self.effort.max_batches, num_batches))
            process.call("begin", sampled(own_batch_size * self._max_batches, folder), config)
            process.call("train")
            start_s = time.perf_counter() - start
            usage = process.call("usage")
        except BaseException:
            process.end()
            raise
        self.total_rows = usage.total_rows
        return _RunningCandidate(candidate, process, batch_size, usage.num_rows, start_s)

    def _input_seconds(
        self, baseline: _RunningCandidate, measurements: Iterable[Measurement]
    ) -> dict[tuple[int, int], float]:
        """Return seconds per epoch without a model, by batch size and rows of a replica."""
        self._report("the loop without a model")
        if self.loop != "graph":
            return {}
        seconds: dict[tuple[int, int], float] = {}
        for each in measurements:
            rows = _replica_rows(each)
            if each.error or rows in seconds:
                continue
            input_loop = self._trainable(
                ScalingSample(*rows, 1.0), Mirrored(), baseline.candidate.resources, input_only=True
            )
            seconds[rows] = baseline.process.call(
                "time_other", input_loop, self.config, self.effort.round_s / 2
            )
        return seconds

    def _trainable(
        self,
        sample: ScalingSample,
        parallelism: Parallelism,
        resources: TrialResources,
        *,
        input_only: bool = False,
    ) -> TrainableClass:
        workload = sample_workload(self.workload, sample, input_only=input_only)
        return trainable(workload, parallelism, resources=resources, loop=self.loop, seed=self.seed)

    def _report(self, step: str, num_steps: int = 1) -> None:
        self.on_progress(step, min(1.0, self._done / self._all))
        self._done += num_steps


@contextlib.contextmanager
def _record_error(
    candidate: ScalingCandidate,
    measurements: dict[ScalingCandidate, Measurement],
    baseline: _RunningCandidate | None,
) -> Iterator[None]:
    """Take an error as the measurement of a candidate; that of the reference is raised."""
    try:
        yield
    except (TuneTfError, ray.exceptions.RayError) as error:
        if baseline is not None and candidate is baseline.candidate:
            raise
        measurements[candidate] = Measurement(candidate, error=_error_text(error))


def group_by_capacity(
    needs: Sequence[Mapping[str, float]],
    capacity: Mapping[str, float],
    reference: Mapping[str, float],
) -> tuple[list[list[int]], list[int]]:
    """Group candidates that fit beside the reference, by the amounts of resources they need.

    Returns groups of indices, and the indices of those that do not fit beside the reference.
    """
    together: list[list[int]] = []
    alone: list[int] = []
    rest: dict[str, float] = {}
    beside = {kind: count - reference.get(kind, 0) for kind, count in capacity.items()}
    for index, need in enumerate(needs):
        if not _fits(beside, need):
            alone.append(index)
            continue
        if not together or not _fits(rest, need):
            together.append([])
            rest = beside
        together[-1].append(index)
        rest = {kind: count - need.get(kind, 0) for kind, count in rest.items()}
    return together, alone


def _fits(capacity: Mapping[str, float], need: Mapping[str, float]) -> bool:
    return all(capacity.get(kind, 0) >= count for kind, count in need.items())


def _needed_resources(candidate: ScalingCandidate) -> dict[str, float]:
    num_processes = candidate.parallelism.num_workers
    return candidate.resources.bundle | {"bytes": _EXPECTED_BYTES * num_processes}


def _free_resources() -> dict[str, float]:
    free: dict[str, float] = ray.available_resources()
    return free | {"bytes": float(psutil.virtual_memory().available)}


def _rates(running: _RunningCandidate) -> tuple[float, ...]:
    return tuple(
        running.num_rows * len(each.epochs_s) / sum(each.epochs_s) for each in running.rounds
    )


def _to_measurement(running: _RunningCandidate, reference_rates: tuple[float, ...]) -> Measurement:
    usage = running.process.call("usage")
    seconds = sum(sum(each.epochs_s) for each in running.rounds)
    return Measurement(
        running.candidate,
        batch_size=running.batch_size,
        num_rows=running.num_rows,
        rates=_rates(running),
        reference_rates=reference_rates,
        start_s=running.start_s,
        memory_bytes=usage.host_bytes or None,
        gpu_memory_bytes=usage.gpu_bytes,
        busy_cores=sum(each.cpu_s for each in running.rounds) / seconds,
        other_cores=sum(each.other_cpu_s for each in running.rounds) / seconds,
        staleness=staleness_of(running.rounds),
    )


def staleness_of(rounds: Sequence[EpochTimings]) -> tuple[float, int] | None:
    """Return the mean and the largest staleness of all epochs; None for synchronous training."""
    epochs = [epoch for each in rounds for epoch in each.staleness]
    if not epochs:
        return None
    means, largest = zip(*epochs, strict=True)
    return sum(means) / len(means), max(largest)


def _replica_rows(measurement: Measurement) -> tuple[int, int]:
    """Return the rows of a batch and of an epoch of one replica."""
    num = measurement.candidate.parallelism.num_replicas
    return max(1, measurement.batch_size // num), max(1, measurement.num_rows // num)


def _with_input_share(
    measurement: Measurement, input_s: Mapping[tuple[int, int], float]
) -> Measurement:
    if measurement.error or _replica_rows(measurement) not in input_s:
        return measurement
    epoch_s = measurement.num_rows / measurement.rows_per_s
    return replace(measurement, input_share=min(1.0, input_s[_replica_rows(measurement)] / epoch_s))


def _error_text(error: Exception) -> str:
    if isinstance(error, ray.exceptions.RayActorError):
        # For an error in an actor's constructor, Ray keeps only the traceback text.
        return error_cause(str(error))
    cause = getattr(error, "cause", None) or error
    text = first_line(cause)
    return text if isinstance(cause, TuneTfError) else f"{type(cause).__name__}: {text}"
