"""Warnings about trials that waste time or resources: idle devices and waits for input."""

import logging
import re
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
_BUSY_MACHINE = 90.0  # percent

_OWN_CPU = f"{SYSTEM_METRICS}process_cpu_utilization_percentage"
_ALL_CPUS = f"{SYSTEM_METRICS}cpu_utilization_percentage"
_GPU = re.compile(rf"{SYSTEM_METRICS}gpu_(\d+)_utilization_percentage")


class ReservationMonitor(tune.Callback):
    """Callback that warns of idle reserved GPUs, and of idle reserved CPUs, once per sweep each.

    It reads the system metrics in results and does nothing without them. It judges a trial by its
    first samples, at least five over ten seconds, and skips the first iteration in a process, which
    mostly traces. It skips trials whose resources a scheduler has changed.

    Args:
        resources: Resources of the process that reports; of several workers, one.
    """

    def __init__(self, resources: TrialResources) -> None:
        self._resources = resources
        self._results: dict[str, list[dict[str, Any]]] = {}
        self._unwarned = {"GPU"} if resources.gpus else set[str]()
        if resources.cpus > 1:
            self._unwarned.add("CPU")

    def on_trial_result(self, trial: Trial, result: dict[str, Any], **info: Any) -> None:
        """Add a sample, and judge the trial once it has enough."""
        if not self._unwarned or not self._is_as_declared(trial):
            return
        if result["iterations_since_restore"] <= 1:
            self._results[trial.trial_id] = [result]
            return
        results = self._results.get(trial.trial_id)
        if results is None or _OWN_CPU not in result:
            return
        results.append(result)
        time_s = result["timestamp"] - results[0]["timestamp"]
        if len(results) > _NUM_SAMPLES and time_s >= _TIME_S:
            self._judge(trial, self._results.pop(trial.trial_id)[1:])

    def on_trial_complete(self, trial: Trial, **info: Any) -> None:
        """Discard a trial's samples."""
        self._results.pop(trial.trial_id, None)

    on_trial_error = on_trial_complete

    def _is_as_declared(self, trial: Trial) -> bool:
        bundles: list[dict[str, float]] = trial.placement_group_factory.bundles
        reserved = next(filter(None, bundles), {})
        return TrialResources.of_bundle(reserved) == self._resources

    def _judge(self, trial: Trial, samples: list[dict[str, Any]]) -> None:
        idle = _idle_gpus(samples)
        if idle and "GPU" in self._unwarned:
            self._unwarned.remove("GPU")
            _log.warning(
                "trial %s reserves %g GPU(s), of which it hardly uses %s (mean of %d samples): "
                "reserve a share of one, like resources.gpus: 0.5, so that several trials use it, "
                "enlarge the batch, or reserve none",
                trial,
                self._resources.gpus,
                ", ".join(f"card {number} ({percent:.1f} %)" for number, percent in idle.items()),
                len(samples),
            )
        # On a busy machine low use may be starvation.
        loads = [each[_OWN_CPU] for each in samples if each.get(_ALL_CPUS, 0.0) < _BUSY_MACHINE]
        if len(loads) < _NUM_SAMPLES or "CPU" not in self._unwarned:
            return
        cores, reserved = fmean(loads) / 100, self._resources.cpus
        if cores < _IDLE_CPUS * reserved:
            self._unwarned.remove("CPU")
            _log.warning(
                "trial %s reserves %d CPUs, of which its process uses %.1f (mean of %d samples): "
                "with fewer resources.cpus more trials run at a time",
                trial,
                reserved,
                cores,
                len(samples),
            )


def _idle_gpus(samples: list[dict[str, Any]]) -> dict[int, float]:
    """Return the mean utilization in percent of each idle card, by its number."""
    loads: dict[int, list[float]] = {}
    for sample in samples:
        for name, value in sample.items():
            if match := _GPU.fullmatch(name):
                loads.setdefault(int(match[1]), []).append(value)
    means = {number: fmean(values) for number, values in sorted(loads.items())}
    return {number: mean for number, mean in means.items() if mean < _IDLE_GPU}


class InputWaitMonitor(tune.Callback):
    """Callback that warns at the end of a sweep if trials waited for rows over 20 % of their time.

    It skips the first iteration in a process, which mostly traces and fills caches.
    """

    def __init__(self) -> None:
        self._wait_s = 0.0
        self._total_s = 0.0

    def on_trial_result(self, result: dict[str, Any], **info: Any) -> None:
        """Add the waiting time of an iteration."""
        share = result.get(INPUT_WAIT)
        if share is None or result["iterations_since_restore"] <= 1:
            return
        self._total_s += result["time_this_iter_s"]
        self._wait_s += share * result["time_this_iter_s"]

    def on_experiment_end(self, **info: Any) -> None:
        """Log the share of waiting time if it is above the limit."""
        if self._wait_s <= _TOLERATED_WAIT * self._total_s:
            return
        _log.warning(
            "the trials waited %.0f %% of their time for rows (%s in MLflow): cache mapped rows "
            "with Pipeline(cache=...) or a data set's .cache(), prepare them once for all trials "
            "with tune_tf.data.prepared in load_data, give a trial more CPUs (resources.cpus), or "
            "run fewer at a time (max_concurrent_trials)",
            100 * self._wait_s / self._total_s,
            INPUT_WAIT,
        )
