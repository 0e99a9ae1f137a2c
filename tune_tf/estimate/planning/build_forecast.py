"""Builder of a sweep forecast from measurements and simulations."""

import shutil
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tune_tf.estimate.planning.costs import TrialCosts
from tune_tf.estimate.planning.disk import DiskForecast
from tune_tf.estimate.planning.machine import Machine
from tune_tf.estimate.planning.measure_trials import TrialMeasurements
from tune_tf.estimate.planning.model_profiles import ModelProfile, ModelProfiles
from tune_tf.estimate.planning.overhead import MeasuredOverhead
from tune_tf.estimate.planning.schedule_model import (
    Limits,
    SweepUsage,
    extend_segments,
    segments_of,
    simulate_slots,
)
from tune_tf.estimate.planning.simulated import SimulatedSweeps
from tune_tf.estimate.sample_process import PeakMemory
from tune_tf.forecast import Forecast, ModelForecast, Range
from tune_tf.sweep.plan import SweepPlan
from tune_tf.trainables.memory.recycling import Recycling

_LEAST_DOUBT = 0.1  # relative; speed varies that much between minutes, however it is measured

# In process start times; the logging process starts before the last trial ends.
_MODEL_LOGGING = 0.15
_SETUP = 0.12  # of Tune, searcher and tracking before the first trial, in process start times
_BUSY = 0.2  # share of cores in use by other programs above which times are unreliable


@dataclass(frozen=True)
class ForecastBuilder:
    """Builder of a forecast.

    Args:
        trained: Trained models, the largest first.
        reuses: Whether a process runs several trials.
        num_to_keep: Checkpoints kept per trial; None for all.
        first_rung: Iteration before which no trial is stopped.
        cluster_s: Seconds to start and to stop Ray; almost 0 for a running cluster.
        store: Overhead of creating an empty MLflow store; None without tracking.
    """

    plan: SweepPlan
    machine: Machine
    profiles: ModelProfiles
    trained: tuple[ModelProfile, ...]
    measured: TrialMeasurements
    costs: TrialCosts
    runs: SimulatedSweeps
    reuses: bool
    num_to_keep: int | None
    first_rung: int
    cluster_s: float
    store: MeasuredOverhead | None
    report: MeasuredOverhead

    def forecast(self, digest: str, made_at: str) -> Forecast:
        """Return the forecast; ``made_at`` is an ISO 8601 time."""
        config, resources = self.plan.config, self.plan.resources
        setup_s = self.cluster_s + _SETUP * self.measured.process_s
        start_s = self._once(setup_s)
        processes_s = self._once(self.measured.process_s)
        training_s = self._doubted(Range.of(each.wall_s for each in self._spent))
        if config.budget.time_budget_s is not None:
            training_s = training_s.at_most(config.budget.time_budget_s + self._longest_epoch_s)
        wall_s = start_s + processes_s + training_s + self._closing_s
        trial_s = self._doubted(Range.of(each.trial_s for each in self._spent))
        hours = (trial_s + processes_s.times(self._num_at_once)).times(1 / 3600)
        memory = self._memory_bytes
        fitting = int(self.machine.available_bytes // max(1.0, memory.likely))
        return Forecast(
            name=config.name,
            settings_digest=digest,
            made_at=made_at,
            machine=str(self.machine),
            cpus=resources.cpus,
            gpus=resources.gpus,
            num_at_once=self._num_at_once,
            num_fitting_memory=fitting,
            max_t=config.scheduler.max_t,
            models=self._models,
            num_parameters=Range.of(each.num_parameters for each in self.profiles.known),
            memory_bytes=memory,
            gpu_memory_bytes=self._gpu_memory_bytes,
            epoch_s=Range.of(self._epoch_seconds),
            trials=Range.of(each.trials for each in self._spent),
            epochs=Range.of(each.epochs for each in self._spent),
            wall_s=wall_s,
            closing_s=self._closing_s,
            cpu_hours=hours.times(resources.cpus),
            gpu_hours=hours.times(resources.gpus),
            disk_bytes=self._disk.folder_bytes,
            closing_bytes=self._disk.closing_bytes,
            mlflow_bytes=self._disk.mlflow_bytes,
            phases={
                "starting and stopping Ray": start_s,
                "first processes: TensorFlow, data, MLflow": processes_s,
                "trials": training_s,
                "report and best model": self._closing_s,
            },
            assumptions=self._assumptions,
            warnings=self._warnings(fitting),
        )

    @property
    def _num_at_once(self) -> int:
        return self.plan.max_concurrent_trials

    @cached_property
    def _spent(self) -> tuple[SweepUsage, ...]:
        """Usage of each simulated sweep within the budget."""
        sweeps = [segments_of(trace, self.runs.seconds) for trace in self.runs.traces]
        budget = self.plan.config.budget
        limits = Limits.of(budget, self.plan.resources, begun_s=self.measured.process_s)
        return tuple(
            simulate_slots(
                extend_segments(sweeps, first, self.runs.growth),
                self.costs.of,
                num_slots=self._num_at_once,
                reuses=self.reuses,
                limits=limits,
            )
            for first in range(len(sweeps))
        )

    @cached_property
    def _doubt(self) -> float:
        """Relative spread of the measured seconds over slots and rounds.

        At least half the share of cores that other programs used, because that load may change.
        """
        apart = []
        for timings in self.measured.timings:
            seconds = [each for timing in timings for each in timing.epochs_s]
            middle = statistics.median(seconds)
            apart.append(statistics.median(abs(each - middle) for each in seconds) / middle)
        busy = min(1.0, self.machine.busy_cores / self.machine.num_cores)
        return max(_LEAST_DOUBT, 1.5 * statistics.fmean(apart), busy / 2)

    def _once(self, seconds: float) -> Range:
        """Return a range around a quantity that was measured once."""
        less, more = min(0.6, 0.2 + self._doubt), 0.3 + 2 * self._doubt
        return Range.around(seconds, less=less, more=more)

    def _doubted(self, seconds: Range) -> Range:
        """Widen a range by the uncertainty of the measured speed."""
        less, more = min(0.6, self._doubt), 2 * self._doubt
        return Range(seconds.low * (1 - less), seconds.likely, seconds.high * (1 + more))

    @cached_property
    def _epoch_seconds(self) -> list[float]:
        return [self.costs.epoch_s(each.config) for each in self.profiles.known]

    @property
    def _longest_epoch_s(self) -> float:
        return max(self._epoch_seconds)

    @cached_property
    def _closing_s(self) -> Range:
        """Seconds after the last trial."""
        seconds = self.report.seconds
        mlflow = self.plan.config.mlflow
        if mlflow is not None and mlflow.log_best_model:
            seconds += _MODEL_LOGGING * self.measured.process_s
        return self._once(seconds)

    @cached_property
    def _memory_bytes(self) -> Range:
        """Peak host memory of a trial at the end of the sweep."""
        measured = self.measured
        fresh = [each.host_bytes for each in measured.fresh.values()] or [measured.grown.host_bytes]
        largest = float(max(fresh))
        grown, growth = max(largest, measured.grown.host_bytes), 0.0
        if self.reuses:
            num_met = len(measured.timings)
            a_program = (grown - largest) / max(1, num_met - 1)
            most = min(Recycling().max_programs, max(it.structures for it in self._spent))
            growth = a_program * max(0, most - num_met)
        likely = (grown if self.reuses else largest) + growth + measured.left_out_bytes
        low = min(float(min(fresh)) + measured.left_out_bytes, likely)
        return Range(low, likely, 1.1 * likely + growth + measured.left_out_bytes)

    @cached_property
    def _gpu_memory_bytes(self) -> Range | None:
        taken = [each.gpu_bytes for each in (*self.measured.fresh.values(), self.measured.grown)]
        known = [each for each in taken if each is not None]
        return Range(min(known), max(known), 1.1 * max(known)) if known else None

    @cached_property
    def _models(self) -> tuple[ModelForecast, ...]:
        found = []
        for index, (profile, timings) in enumerate(
            zip(self.trained, self.measured.timings, strict=True)
        ):
            memory = self.measured.fresh.get(index)
            seconds = [self.measured.scale * each for timing in timings for each in timing.epochs_s]
            later = [
                timing for place, timing in enumerate(timings) if place % len(self.trained) != index
            ]
            first_s = statistics.median(timing.first_s for timing in timings)
            found.append(
                ModelForecast(
                    label=self._label(index),
                    config=profile.config,
                    num_parameters=profile.num_parameters,
                    checkpoint_bytes=max(timing.checkpoint_bytes for timing in timings),
                    memory_bytes=self._memory_with_all_rows(memory),
                    gpu_memory_bytes=None if memory is None else memory.gpu_bytes,
                    epoch_s=Range.of(seconds),
                    trace_s=max(0.0, first_s - statistics.median(seconds) / self.measured.scale),
                    start_s=statistics.median(timing.start_s for timing in later or timings),
                )
            )
        return tuple(found)

    def _memory_with_all_rows(self, memory: PeakMemory | None) -> int | None:
        return None if memory is None else memory.host_bytes + self.measured.left_out_bytes

    def _label(self, index: int) -> str:
        profile = self.trained[index]
        if profile == self.profiles.largest:
            return "largest"
        return "smallest" if profile == self.profiles.smallest else f"random {index}"

    @cached_property
    def _disk(self) -> DiskForecast:
        return DiskForecast(
            plan=self.plan,
            profiles=self.profiles,
            trained=self.trained,
            measured=self.measured,
            spent=self._spent,
            num_to_keep=self.num_to_keep,
            store=self.store,
            report=self.report,
        )

    @property
    def _assumptions(self) -> tuple[str, ...]:
        measured, config = self.measured, self.plan.config
        ended = "the trials of a process share programs by structure"
        shares = ended if self.profiles.shares else "every trial is retraced"
        at_once = f"{measured.num_slots} at a time"
        if measured.num_slots < self._num_at_once:
            at_once += f", where the sweep runs {self._num_at_once}, which may slow each other down"
        rows = ""
        if measured.scale > 1:
            rows = (
                f" The first {measured.num_rows:,} of {measured.total_rows:,} training rows were "
                "used; an iteration is assumed to grow with the rows."
            )
        found = [
            f"Trained: {len(self.trained)} configs in fresh processes, {at_once}, with the "
            f"resources of a trial.{rows}",
            "Smallest and largest are corners of the space, found by changing one parameter at a "
            f"time; {len(self.profiles.drawn)} random models were built as well.",
            f"Iterations that the scheduler lets trials run: {len(self.runs.traces)} sweeps in "
            f"virtual time under {config.scheduler.name} with the sampler {self.runs.sampler}, on "
            "synthetic learning curves. Your curves will differ: that is most of the range.",
            f"Tracing: {shares}.",
            "Trials neither fail nor stop by themselves, and nothing else runs on the machine.",
        ]
        if self.runs.growth > 1:
            found.append(
                "Trials beyond the simulated ones are assumed to behave alike: "
                f"{config.budget.num_samples:,} for {len(self.runs.traces[0].trials):,}."
            )
        return tuple(found)

    def _warnings(self, fitting: int) -> tuple[str, ...]:
        config, machine, memory = self.plan.config, self.machine, self._memory_bytes
        found = []
        if fitting < self._num_at_once and machine.num_nodes == 1:
            found.append(
                f"{self._num_at_once} concurrent trials need about "
                f"{self._num_at_once * memory.likely / 1e9:.1f} GB of memory, of which "
                f"{machine.available_bytes / 1e9:.1f} GB are free: set max_concurrent_trials to "
                f"{max(1, fitting)}, or trials will be killed and restarted"
            )
        first_s = self.measured.process_s + self.costs.trace_s
        first_s += self.first_rung * self._longest_epoch_s
        budget_s = config.budget.time_budget_s
        if budget_s is not None and budget_s < first_s:
            found.append(
                f"budget.time_budget_s is {budget_s:g}, but the largest model takes {first_s:.0f} "
                f"s to its first rung (iteration {self.first_rung}): trials may never be compared"
            )
        if machine.busy_cores > _BUSY * machine.num_cores:
            found.append(
                f"other programs used {machine.busy_cores:.1f} of {machine.num_cores} cores when "
                "this was measured: times are longer than on a quiet machine"
            )
        free = _free_bytes(config.sweeps_path)
        if free is not None and free < self._disk.folder_bytes.high:
            found.append(
                f"the sweep's folder may grow to {self._disk.folder_bytes.high / 1e9:.1f} GB, but "
                f"{free / 1e9:.1f} GB are free in {config.sweeps_path}"
            )
        if self.profiles.num_broken:
            found.append(
                f"{self.profiles.num_broken} of "
                f"{self.profiles.num_broken + len(self.profiles.drawn)} random models could not be "
                f"built, their trials will fail: {self.profiles.broken}"
            )
        return tuple(found)


def _free_bytes(path: Path) -> int | None:
    """Return the free bytes of the disk of a folder that may not exist yet; None if unknown."""
    there: Sequence[Path] = [
        each for each in (path.absolute(), *path.absolute().parents) if each.exists()
    ]
    try:
        return shutil.disk_usage(there[0]).free if there else None
    except OSError:
        return None
