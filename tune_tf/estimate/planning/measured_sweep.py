"""Measurements and simulations of a sweep, and the ranges that follow from them."""

import math
import os
import statistics
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import psutil
import ray

from tune_tf.config import SweepConfig
from tune_tf.data.node_store import max_shared_bytes
from tune_tf.estimate.planning.measure_trials import TrialMeasurements
from tune_tf.estimate.planning.model_profiles import ModelProfile, ModelProfiles, config_text
from tune_tf.estimate.planning.schedule_model import (
    CostModel,
    Limits,
    SweepUsage,
    extend_segments,
    segments_of,
    simulate_slots,
)
from tune_tf.estimate.planning.simulated_sweeps import SimulatedSweeps
from tune_tf.estimate.sample_process import robust_spread
from tune_tf.forecast import Range
from tune_tf.formatting import bytes_text
from tune_tf.parallelism import Folds
from tune_tf.result_keys import NOT_SHARED
from tune_tf.sweep.plan import SweepPlan
from tune_tf.trainables.memory.recycling import Recycling

_MIN_UNCERTAINTY = 0.1  # relative; speed varies that much between minutes, however it is measured

# Bytes in the sweep's folder, as Tune, Optuna and the event log write them.
_RESULT_BYTES = 750  # a line in result.json
_TRIAL_BYTES = 26_000  # a trial in Tune's snapshot, the study and the event log
_SWEEP_BYTES = 25_000

# Bytes in MLflow's store.
_POINT_BYTES = 150  # a metric value, with its database index
_NUM_POINTS = 10  # metrics per result
_RUN_BYTES = 15_000  # a trial's run, without metric values
_BEST_MODEL_BYTES = 30_000  # a logged model, without its weights


@dataclass(frozen=True)
class Machine:
    """Resources of the Ray cluster and, from ``num_cores`` on, of this machine."""

    num_nodes: int
    cpus: float
    gpus: float
    num_cores: int
    memory_bytes: int
    available_bytes: int
    busy_cores: float
    max_shared_bytes: float = math.inf

    @classmethod
    def of(cls, busy_percent: float) -> "Machine":
        """Inspect the connected cluster, and this machine with its CPU usage before the start."""
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        memory = psutil.virtual_memory()
        num_cores = os.cpu_count() or 1
        return cls(
            num_nodes=len(nodes),
            cpus=sum(node.get("CPU", 0) for node in nodes),
            gpus=sum(node.get("GPU", 0) for node in nodes),
            num_cores=num_cores,
            memory_bytes=int(memory.total),
            available_bytes=int(memory.available),
            busy_cores=busy_percent / 100 * num_cores,
            max_shared_bytes=max_shared_bytes(),
        )

    def __str__(self) -> str:
        """Describe the cluster in a few words."""
        nodes = f"{self.num_nodes} nodes with " if self.num_nodes > 1 else ""
        gpus = f", {self.gpus:g} GPU(s)" if self.gpus else ""
        return f"{nodes}{self.cpus:g} CPU(s){gpus}, {self.memory_bytes / 1e9:.0f} GB of memory"


@dataclass(frozen=True)
class MeasuredOverhead:
    """Duration of a task, and size of the files it wrote."""

    seconds: float
    num_bytes: int


class FrozenForecast(NamedTuple):
    """What is shared, or why nothing is, and the bytes of a trial's outputs; None for none."""

    text: str
    num_bytes: Range | None


@dataclass(frozen=True)
class MeasuredSweep:
    """Measurements and simulations of a sweep, and the ranges that follow from them.

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
    costs: CostModel
    simulated: SimulatedSweeps
    reuses: bool
    num_to_keep: int | None
    first_rung: int
    cluster_s: float
    store: MeasuredOverhead | None
    report: MeasuredOverhead

    @cached_property
    def usages(self) -> tuple[SweepUsage, ...]:
        """Usage of each simulated sweep within the budget."""
        sweeps = [segments_of(trace, self.costs.epoch_s) for trace in self.simulated.traces]
        budget = self.plan.config.budget
        limits = Limits.of(budget, self.plan.resources, begun_s=self.measured.process_s)
        return tuple(
            simulate_slots(
                extend_segments(sweeps, first, self.simulated.growth),
                self.costs,
                num_slots=self.plan.max_concurrent_trials,
                reuses=self.reuses,
                limits=limits,
            )
            for first in range(len(sweeps))
        )

    @cached_property
    def trials(self) -> Range:
        """Number of trials."""
        return Range.of(each.trials for each in self.usages)

    @cached_property
    def epochs(self) -> Range:
        """Iterations of all trials."""
        return Range.of(each.epochs for each in self.usages)

    @cached_property
    def _uncertainty(self) -> float:
        """Relative spread of the measured seconds over slots and rounds.

        At least half the share of cores that other programs used, because that load may change.
        """
        spreads = []
        for timings in self.measured.timings:
            seconds = [each for timing in timings for each in timing.epochs_s]
            spreads.append(robust_spread(seconds) / statistics.median(seconds))
        busy = min(1.0, self.machine.busy_cores / self.machine.num_cores)
        return max(_MIN_UNCERTAINTY, statistics.fmean(spreads), busy / 2)

    def around_single(self, seconds: float) -> Range:
        """Return a range around a single measurement."""
        less, more = min(0.6, 0.2 + self._uncertainty), 0.3 + 2 * self._uncertainty
        return Range.around(seconds, less=less, more=more)

    def widen(self, seconds: Range) -> Range:
        """Widen a range by the uncertainty of the measured speed."""
        less, more = min(0.6, self._uncertainty), 2 * self._uncertainty
        return Range(seconds.low * (1 - less), seconds.likely, seconds.high * (1 + more))

    @cached_property
    def epoch_seconds(self) -> list[float]:
        """Seconds per iteration of each profiled model."""
        return [self.costs.epoch_s(each.config) for each in self.profiles.known]

    @cached_property
    def frozen_layers(self) -> FrozenForecast:
        """Outputs of frozen layers that trials share."""
        return forecast_frozen_layers(
            self.plan.config, self.profiles, self.measured, self.machine.max_shared_bytes
        )

    @cached_property
    def memory_bytes(self) -> Range:
        """Peak host memory of a trial at the end of the sweep."""
        left_out_bytes = float(self.measured.final_usage.left_out_bytes)
        if self.frozen_layers.num_bytes is not None:  # the sample has outputs of its rows alone
            left_out_bytes += (1 - 1 / self.measured.scale) * self.frozen_layers.num_bytes.high
        host_bytes = [each.host_bytes for each in self.measured.first_usages.values()]
        largest = likely = float(max(host_bytes))
        growth = 0.0
        if self.reuses:
            likely = max(largest, self.measured.final_usage.host_bytes)
            num_programs = len(self.measured.timings)
            program_bytes = (likely - largest) / max(1, num_programs - 1)
            max_programs = max(each.max_programs for each in self.usages)
            num_new = min(Recycling().max_programs, max_programs) - num_programs
            growth = program_bytes * max(0, num_new)
        likely += growth + left_out_bytes
        low = min(float(min(host_bytes)) + left_out_bytes, likely)
        return Range(low, likely, 1.1 * likely + growth + left_out_bytes)

    @cached_property
    def gpu_memory_bytes(self) -> Range | None:
        """Peak GPU memory of a trial; None without GPUs."""
        usages = (*self.measured.first_usages.values(), self.measured.final_usage)
        known = [each.gpu_bytes for each in usages if each.gpu_bytes is not None]
        return Range(min(known), max(known), 1.1 * max(known)) if known else None

    @cached_property
    def folder_bytes(self) -> Range:
        """Size of the sweep's folder at its end; the upper bound also holds while trials run."""
        size, count = self._checkpoints_bytes(), self._trials_with_checkpoints()
        checkpoints = Range(
            count.low * size.low, count.likely * size.likely, count.high * size.high
        )
        logs = self.epochs.times(_RESULT_BYTES) + self.trials.times(_TRIAL_BYTES)
        return checkpoints + logs + self.closing_bytes + Range.exactly(_SWEEP_BYTES)

    @cached_property
    def mlflow_bytes(self) -> Range:
        """Size of MLflow's store."""
        if self.store is None:
            return Range.exactly(0)
        trials = self.trials.times(_RUN_BYTES)
        points = self.epochs.times(_NUM_POINTS * _POINT_BYTES)
        once = Range.around(self.store.num_bytes, less=1.0, more=0.1)  # the store may already exist
        return once + trials + points + self.closing_bytes

    @cached_property
    def closing_bytes(self) -> Range:
        """Bytes written after the last trial: the report and the best model."""
        num_bytes = self.report.num_bytes
        if self.logs_model:
            num_bytes += self.profiles.largest.state_bytes + _BEST_MODEL_BYTES
        return Range.around(num_bytes, less=0.4, more=0.3)

    @property
    def logs_model(self) -> bool:
        """Whether the best model is logged to MLflow."""
        mlflow = self.plan.config.mlflow
        return mlflow is not None and mlflow.log_best_model

    def _checkpoints_bytes(self) -> Range:
        """Return the size of the checkpoints kept per trial."""
        measured_bytes = sum(
            max(timing.checkpoint_bytes for timing in timings) for timings in self.measured.timings
        )
        ratio = measured_bytes / max(1, sum(each.state_bytes for each in self.trained))
        sizes = sorted(ratio * each.state_bytes for each in self.profiles.known)
        mean = statistics.fmean(
            ratio * each.state_bytes for each in self.profiles.random or self.trained
        )
        counts = []
        interval_s = self.plan.config.checkpoint_interval_s
        for usage in self.usages:
            num_trials = max(1, usage.trials)
            num_intervals = (
                usage.trial_s / num_trials // interval_s
                if interval_s
                else usage.epochs / num_trials
            )
            num_saved = 1 + num_intervals  # one at the end of the trial
            counts.append(max(1.0, min(num_saved, self.num_to_keep or num_saved)))
        count = Range.of(counts)
        # A checkpoint also holds the trial's best epoch, if that is kept and is an earlier one.
        states = 2 if self.plan.config.keep_best is not None else 1
        return Range(
            (sizes[0] + mean) / 2 * count.low,
            states * mean * count.likely,
            states * (sizes[-1] + mean) / 2 * count.high,
        )

    def _trials_with_checkpoints(self) -> Range:
        """Return how many trials have checkpoints on disk; the upper bound counts running ones."""
        config, trials = self.plan.config, self.trials
        if config.remote_storage is not None:
            return Range.exactly(0)
        if config.keep_checkpoints == "all":
            return trials
        num_kept = config.keep_checkpoints
        num_with_running = num_kept + 2 * self.plan.max_concurrent_trials
        return replace(trials.at_most(num_kept), high=min(trials.high, num_with_running))


def forecast_frozen_layers(
    config: SweepConfig, profiles: ModelProfiles, measured: TrialMeasurements, max_bytes: float
) -> FrozenForecast:
    """Forecast the shared outputs from the shapes of the models; the text is empty without any.

    The measured trials tell what shapes do not: rows that may change, or layers that depend on
    chance. ``max_bytes`` is what the outputs may take on a node.
    """
    models = [each for each in profiles.known if each.frozen_layers]
    if not models:
        return FrozenForecast("", None)
    if obstacle := _settings_obstacle(config) or profiles.frozen_obstacle:
        return FrozenForecast(f"{NOT_SHARED}{obstacle}", None)
    shared = [each for each in models if each.frozen_row_bytes is not None]
    texts = [each.frozen_layers for each in models if each.frozen_row_bytes is None]
    texts += [each for each in measured.frozen_layers if each.startswith(NOT_SHARED)]
    reasons = "; ".join(dict.fromkeys(texts))
    usage = measured.final_usage
    num_rows = usage.total_rows + usage.validation_rows
    all_refused = bool(measured.frozen_layers) and all(
        each.startswith(NOT_SHARED) for each in measured.frozen_layers
    )
    if not shared or all_refused or not num_rows:
        return FrozenForecast(reasons or f"{NOT_SHARED}the number of rows is unknown", None)
    sizes = Range.of(float(num_rows * (each.frozen_row_bytes or 0)) for each in shared)
    if sizes.low > max_bytes:
        size = f"{bytes_text(sizes.low)} of outputs do not fit into {bytes_text(max_bytes)}"
        return FrozenForecast(f"{NOT_SHARED}{size}, half of the object store", None)
    where = "on each node, by fold" if isinstance(config.parallelism, Folds) else "on each node"
    model = profiles.largest if profiles.largest in shared else shared[0]
    text = f"shared {where}: outputs of {model.frozen_layers}"
    if len({each.frozen_layers for each in shared}) > 1:
        text += f" with {config_text(model.config)}"
    return FrozenForecast(f"{text}; in other trials {reasons}" if reasons else text, sizes)


def _settings_obstacle(config: SweepConfig) -> str:
    """Return the setting because of which trials share no outputs; empty if they may."""
    if not config.share_frozen:
        return "share_frozen is false"
    if config.loop == "fit":
        return "loop is fit"
    kind = config.parallelism
    return "" if kind.shares_frozen else f"parallelism {kind.kind} computes the whole model"
