"""Adds up what was measured and simulated to a forecast."""

import shutil
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tune_tf.estimate.planning.costs import Costs
from tune_tf.estimate.planning.disk import Disk
from tune_tf.estimate.planning.machine import Machine
from tune_tf.estimate.planning.measure_trials import Measured
from tune_tf.estimate.planning.model_profiles import ModelProfile, ModelProfiles
from tune_tf.estimate.planning.overhead import MeasuredOverhead
from tune_tf.estimate.planning.schedule_model import Limits, Spent, segments_of, spend, stretched
from tune_tf.estimate.planning.simulated import Simulated
from tune_tf.estimate.planning.trial_actor import Memory
from tune_tf.forecast import Forecast, ModelForecast, Range
from tune_tf.sweep.plan import SweepPlan
from tune_tf.trainables.memory.recycling import Recycling

_LEAST_DOUBT = 0.1  # speed differs by that from one minute to the next, however it was measured

_MODEL_LOGGING = 0.15  # starts of a process; the one that does it runs before the last trial ends
_SETUP = 0.12  # Tune, searcher and tracking until trials are asked for, in starts of a process
_BUSY = 0.2  # of the cores, by other programs: then times are not those of a quiet machine


@dataclass(frozen=True)
class ForecastBuilder:
    """What a forecast is made of.

    Args:
        plan: What the sweep would do.
        machine: What it will run on.
        survey: The models of the space.
        facts: Those that were trained, the largest first.
        measured: What came of these.
        costs: What trials take.
        runs: The sweep in virtual time.
        reuses: Whether a process runs one trial after another.
        num_to_keep: Checkpoints of a trial that are kept; None for all.
        first_rung: Iterations before which no trial is stopped.
        cluster_s: Seconds that Ray took to start and to end; almost none where it ran.
        store: What MLflow took to make an empty store; None without tracking.
        report: What the report took.
    """

    plan: SweepPlan
    machine: Machine
    survey: ModelProfiles
    facts: tuple[ModelProfile, ...]
    measured: Measured
    costs: Costs
    runs: Simulated
    reuses: bool
    num_to_keep: int | None
    first_rung: int
    cluster_s: float
    store: MeasuredOverhead | None
    report: MeasuredOverhead

    def forecast(self, digest: str, made_at: str) -> Forecast:
        """Add up.

        Args:
            digest: Of the settings.
            made_at: When, as ISO 8601.
        """
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
            num_parameters=Range.of(each.num_parameters for each in self.survey.known),
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
                "starting and ending Ray": start_s,
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
    def _spent(self) -> tuple[Spent, ...]:
        """What each simulated sweep spends within the budget."""
        all_stints = [segments_of(trace, self.runs.seconds) for trace in self.runs.traces]
        budget = self.plan.config.budget
        limits = Limits.of(budget, self.plan.resources, begun_s=self.measured.process_s)
        return tuple(
            spend(
                stretched(all_stints, first, self.runs.growth),
                self.costs.of,
                num_slots=self._num_at_once,
                reuses=self.reuses,
                limits=limits,
            )
            for first in range(len(all_stints))
        )

    @cached_property
    def _doubt(self) -> float:
        """Part by which measured seconds differ from each other, over slots and rounds.

        Other programs that were seen may be gone later, and some that were not may come.
        """
        apart = []
        for turns in self.measured.turns:
            seconds = [each for turn in turns for each in turn.epochs_s]
            middle = statistics.median(seconds)
            apart.append(statistics.median(abs(each - middle) for each in seconds) / middle)
        busy = min(1.0, self.machine.busy_cores / self.machine.num_cores)
        return max(_LEAST_DOUBT, 1.5 * statistics.fmean(apart), busy / 2)

    def _once(self, seconds: float) -> Range:
        """Return a range for what was measured a single time."""
        less, more = min(0.6, 0.2 + self._doubt), 0.3 + 2 * self._doubt
        return Range.around(seconds, less=less, more=more)

    def _doubted(self, seconds: Range) -> Range:
        """Return a range that holds what the measured speed may be off as well."""
        less, more = min(0.6, self._doubt), 2 * self._doubt
        return Range(seconds.low * (1 - less), seconds.likely, seconds.high * (1 + more))

    @cached_property
    def _epoch_seconds(self) -> list[float]:
        return [self.costs.epoch_s(each.config) for each in self.survey.known]

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
        """Most host memory of a trial, at the end of the sweep."""
        measured = self.measured
        fresh = [each.host_bytes for each in measured.fresh.values()] or [measured.grown.host_bytes]
        largest = float(max(fresh))
        grown, growth = max(largest, measured.grown.host_bytes), 0.0
        if self.reuses:
            num_met = len(measured.turns)
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
        for index, (facts, turns) in enumerate(zip(self.facts, self.measured.turns, strict=True)):
            memory = self.measured.fresh.get(index)
            seconds = [self.measured.scale * each for turn in turns for each in turn.epochs_s]
            later = [turn for place, turn in enumerate(turns) if place % len(self.facts) != index]
            first_s = statistics.median(turn.first_s for turn in turns)
            found.append(
                ModelForecast(
                    label=self._label(index),
                    config=facts.config,
                    num_parameters=facts.num_parameters,
                    checkpoint_bytes=max(turn.checkpoint_bytes for turn in turns),
                    memory_bytes=self._held(memory),
                    gpu_memory_bytes=None if memory is None else memory.gpu_bytes,
                    epoch_s=Range.of(seconds),
                    trace_s=max(0.0, first_s - statistics.median(seconds) / self.measured.scale),
                    start_s=statistics.median(turn.start_s for turn in later or turns),
                )
            )
        return tuple(found)

    def _held(self, memory: Memory | None) -> int | None:
        """Return the host memory of processes that hold all rows."""
        return None if memory is None else memory.host_bytes + self.measured.left_out_bytes

    def _label(self, index: int) -> str:
        facts = self.facts[index]
        if facts == self.survey.largest:
            return "largest"
        return "smallest" if facts == self.survey.smallest else f"random {index}"

    @cached_property
    def _disk(self) -> Disk:
        return Disk(
            plan=self.plan,
            survey=self.survey,
            facts=self.facts,
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
        shares = ended if self.survey.shares else "every trial is traced anew"
        at_once = f"{measured.num_slots} at a time"
        if measured.num_slots < self._num_at_once:
            at_once += f", where the sweep runs {self._num_at_once}: more may slow each other down"
        rows = ""
        if measured.scale > 1:
            rows = (
                f" The first {measured.num_rows:,} of {measured.total_rows:,} training rows were "
                "used; an iteration is taken to grow with the rows."
            )
        found = [
            f"Trained: {len(self.facts)} configs in fresh processes, {at_once}, with what a trial "
            f"reserves.{rows}",
            "Smallest and largest are corners of the space, found by changing one parameter after "
            f"the other; {len(self.survey.drawn)} random models were built beside them.",
            f"How many iterations the scheduler lets trials run: {len(self.runs.traces)} sweeps in "
            f"virtual time under {config.scheduler.name} with the sampler {self.runs.sampler}, on "
            "made-up learning curves. Your curves will differ: that is most of the range.",
            f"Tracing: {shares}.",
            "Trials neither fail nor stop by themselves, and nothing else is started on the "
            "machine.",
        ]
        if self.runs.growth > 1:
            found.append(
                "More trials than were simulated are taken to go on as those did: "
                f"{config.budget.num_samples:,} for {len(self.runs.traces[0].trials):,}."
            )
        return tuple(found)

    def _warnings(self, fitting: int) -> tuple[str, ...]:
        config, machine, memory = self.plan.config, self.machine, self._memory_bytes
        found = []
        if fitting < self._num_at_once and machine.num_nodes == 1:
            found.append(
                f"{self._num_at_once} trials at a time need about "
                f"{self._num_at_once * memory.likely / 1e9:.1f} GB of memory, of which "
                f"{machine.available_bytes / 1e9:.1f} GB are free: set max_concurrent_trials to "
                f"{max(1, fitting)}, or trials will be ended and started again"
            )
        first_s = self.measured.process_s + self.costs.trace_s
        first_s += self.first_rung * self._longest_epoch_s
        budget_s = config.budget.time_budget_s
        if budget_s is not None and budget_s < first_s:
            found.append(
                f"budget.time_budget_s is {budget_s:g}, but the largest model takes "
                f"{first_s:.0f} s to its first rung (iteration {self.first_rung}): no trial may be "
                "compared with another"
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
        if self.survey.num_broken:
            found.append(
                f"{self.survey.num_broken} of "
                f"{self.survey.num_broken + len(self.survey.drawn)} random models could not be "
                f"built, their trials will fail: {self.survey.broken}"
            )
        return tuple(found)


def _free_bytes(path: Path) -> int | None:
    """Return the free bytes of the disk that a folder is or will be on; None where unknown."""
    there: Sequence[Path] = [
        each for each in (path.absolute(), *path.absolute().parents) if each.exists()
    ]
    try:
        return shutil.disk_usage(there[0]).free if there else None
    except OSError:
        return None
