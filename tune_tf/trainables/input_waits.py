"""Warning about trials that wait for input."""

import logging
from typing import Any

from ray import tune
from ray.tune.experiment import Trial

from tune_tf.result_keys import INPUT_WAIT

_log = logging.getLogger(__name__)

_TOLERATED = 0.2


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
        if self._waited_s <= _TOLERATED * self._took_s:
            return
        _log.warning(
            "the trials waited %.0f %% of their time for rows (%s in MLflow): cache mapped rows "
            "with Pipeline(cache=...), prepare them once for all trials with tune_tf.data.prepared "
            "in load_data, give a trial more CPUs (resources.cpus), or run fewer at a time "
            "(max_concurrent_trials)",
            100 * self._waited_s / self._took_s,
            INPUT_WAIT,
        )
