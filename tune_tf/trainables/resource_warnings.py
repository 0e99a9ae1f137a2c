"""Warnings about trials that waste time or resources: idle devices and waits for input."""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from ray import tune
from ray.tune.experiment import Trial

from tune_tf.resources import TrialResources
from tune_tf.result_keys import INPUT_WAIT, SYSTEM_METRICS

_log = logging.getLogger(__name__)

_TOLERATED_WAIT = 0.2  # fraction of the time
_NUM_SAMPLES = 5
_TIME_S = 10.0
_IDLE_GPU = 5.0  # percent of the time
_IDLE_CPUS = 0.5  # fraction of the reserved CPUs
_BUSY_MACHINE = 90.0  # percent; on a busier machine low use may be starvation

_OWN_CPU = f"{SYSTEM_METRICS}process_cpu_utilization_percentage"
_ALL_CPUS = f"{SYSTEM_METRICS}cpu_utilization_percentage"
_GPU = re.compile(rf"{SYSTEM_METRICS}gpu_(\d+)_utilization_percentage")


class WatchReservations(tune.Callback):
    """Callback that warns of idle reserved GPUs, and of idle reserved CPUs, once per sweep each.

    It reads the system metrics in results and does nothing without them. It judges a trial by its
    first samples, at least five over ten seconds, and skips the first iteration in a process, which
    mostly traces. It skips trials whose resources a scheduler has changed.

    Args:
        resources: Resources of the process that reports; of several workers, one.
    """

    def __init__(self, resources: TrialResources) -> None:
        self._resources = resources
        self._samples: dict[str, _Samples] = {}
        self._waiting = {"GPU"} if resources.gpus else set[str]()
        if resources.cpus > 1:
            self._waiting.add("CPU")

    def on_trial_result(
        self,
        iteration: int,
        trials: list[Trial],
        trial: Trial,
        result: dict[str, Any],
        **info: Any,
    ) -> None:
        """Add a sample, and judge the trial once it has enough."""
        if not self._waiting or not self._is_as_declared(trial):
            return
        if result["iterations_since_restore"] <= 1:
            self._samples[trial.trial_id] = _Samples(since=result["timestamp"])
            return
        samples = self._samples.get(trial.trial_id)
        if samples is None or _OWN_CPU not in result:
            return
        samples.take(result)
        if samples.is_enough:
            del self._samples[trial.trial_id]
            self._judge(trial, samples)

    def on_trial_complete(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """Discard a trial's samples."""
        self._samples.pop(trial.trial_id, None)

    on_trial_error = on_trial_complete

    def _is_as_declared(self, trial: Trial) -> bool:
        bundles = trial.placement_group_factory.bundles
        reserved: dict[str, float] = next(filter(None, bundles), {})
        return (reserved.get("CPU", 0), reserved.get("GPU", 0)) == (
            self._resources.cpus,
            self._resources.gpus,
        )

    def _judge(self, trial: Trial, samples: "_Samples") -> None:
        idle = samples.idle_gpus
        if idle and "GPU" in self._waiting:
            self._waiting.remove("GPU")
            _log.warning(
                "trial %s reserves %g GPU(s), of which it hardly uses %s (mean of %d samples): "
                "reserve a share of one, like resources.gpus: 0.5, so that several trials use it, "
                "enlarge the batch, or reserve none",
                trial,
                self._resources.gpus,
                ", ".join(f"card {number} ({percent:.1f} %)" for number, percent in idle.items()),
                samples.num,
            )
        cores = samples.cores
        reserved = self._resources.cpus
        if cores is not None and cores < _IDLE_CPUS * reserved and "CPU" in self._waiting:
            self._waiting.remove("CPU")
            _log.warning(
                "trial %s reserves %d CPUs, of which its process uses %.1f (mean of %d samples): "
                "with fewer resources.cpus more trials run at a time",
                trial,
                reserved,
                cores,
                samples.num,
            )


@dataclass
class _Samples:
    """Utilization samples of a process since the end of its first iteration, in seconds."""

    since: float
    num: int = 0
    time_s: float = 0.0
    gpus: dict[int, list[float]] = field(default_factory=dict)
    cpu: list[float] = field(default_factory=list)

    def take(self, result: Mapping[str, Any]) -> None:
        self.num += 1
        self.time_s = result["timestamp"] - self.since
        for name, value in result.items():
            if match := _GPU.fullmatch(name):
                self.gpus.setdefault(int(match[1]), []).append(value)
        if result.get(_ALL_CPUS, 0.0) < _BUSY_MACHINE:
            self.cpu.append(result[_OWN_CPU])

    @property
    def is_enough(self) -> bool:
        return self.num >= _NUM_SAMPLES and self.time_s >= _TIME_S

    @property
    def idle_gpus(self) -> dict[int, float]:
        """Mean utilization in percent of each idle card, by its number."""
        means = {number: fmean(values) for number, values in sorted(self.gpus.items())}
        return {number: mean for number, mean in means.items() if mean < _IDLE_GPU}

    @property
    def cores(self) -> float | None:
        """Mean number of used cores; None if the machine was too busy to judge."""
        return fmean(self.cpu) / 100 if len(self.cpu) >= _NUM_SAMPLES else None


class WatchInput(tune.Callback):
    """Callback that warns at the end of a sweep if trials waited for rows over 20 % of their time.

    It skips the first iteration in a process, which mostly traces and fills caches.
    """

    def __init__(self) -> None:
        self._waited_s = 0.0
        self._took_s = 0.0

    def on_trial_result(
        self,
        iteration: int,
        trials: list[Trial],
        trial: Trial,
        result: dict[str, Any],
        **info: Any,
    ) -> None:
        """Add the waiting time of an iteration."""
        share = result.get(INPUT_WAIT)
        if share is None or result["iterations_since_restore"] <= 1:
            return
        self._took_s += result["time_this_iter_s"]
        self._waited_s += share * result["time_this_iter_s"]

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        """Log the share of waiting time if it is above the limit."""
        if self._waited_s <= _TOLERATED_WAIT * self._took_s:
            return
        _log.warning(
            "the trials waited %.0f %% of their time for rows (%s in MLflow): cache mapped rows "
            "with Pipeline(cache=...), prepare them once for all trials with tune_tf.data.prepared "
            "in load_data, give a trial more CPUs (resources.cpus), or run fewer at a time "
            "(max_concurrent_trials)",
            100 * self._waited_s / self._took_s,
            INPUT_WAIT,
        )
