"""Hyperband that fills one bracket after the other, as in BOHB."""

from types import SimpleNamespace
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import HyperBandForBOHB

from tune_tf.config.scheduler_settings import BohbSettings
from tune_tf.objective import Objective
from tune_tf.result_keys import TRAINING_ITERATION
from tune_tf.schedulers.controller_proxy import ControllerProxy
from tune_tf.schedulers.hyperband import HyperbandScheduler


class BohbScheduler(HyperbandScheduler, HyperBandForBOHB):
    """Ray's ``HyperBandForBOHB`` with recorded trial outcomes, for any searcher.

    The largest bracket comes first, and its trials wait until it is full or no more trials come. So
    choose it where few trials run concurrently: Hyperband's brackets continue with those that
    exist.

    Args:
        objective: The metric that trials are compared by.
        settings: Positions of the milestones.
    """

    def __init__(self, objective: Objective, settings: BohbSettings) -> None:
        """Create Ray's scheduler."""
        HyperBandForBOHB.__init__(
            self,
            time_attr=TRAINING_ITERATION,
            metric=objective.metric,
            mode=objective.mode,
            max_t=settings.max_t,
            reduction_factor=settings.reduction_factor,
        )
        self._configure(objective, settings)

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        """Return the decision of Ray's scheduler."""
        return super().on_trial_result(_proxy(tune_controller), trial, result)

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        """Record the outcome, then notify Ray's scheduler."""
        super().on_trial_complete(_proxy(tune_controller), trial, result)

    def on_trial_remove(self, tune_controller: Any, trial: Trial) -> None:
        """Record the outcome, then notify Ray's scheduler."""
        super().on_trial_remove(_proxy(tune_controller), trial)

    def on_trial_error(self, tune_controller: Any, trial: Trial) -> None:
        """Notify Ray's scheduler."""
        super().on_trial_error(_proxy(tune_controller), trial)

    def choose_trial_to_run(self, tune_controller: Any, **options: Any) -> Trial | None:
        """Return the trial to run next."""
        return super().choose_trial_to_run(_proxy(tune_controller), **options)

    def _stalled_brackets(self) -> list[Any]:
        """Return nothing: Ray's scheduler finds stalled brackets itself."""
        return []


def _proxy(controller: Any) -> Any:
    """Return a controller whose searcher accepts notices of pauses, which Ray assumes."""
    if isinstance(controller, ControllerProxy):
        return controller
    searcher = _unwrap_searcher(getattr(controller, "search_alg", None))
    if hasattr(searcher, "on_pause"):
        return controller
    nobody = SimpleNamespace(on_pause=lambda _: None, on_unpause=lambda _: None)
    return ControllerProxy(controller, search_alg=SimpleNamespace(searcher=nobody))


def _unwrap_searcher(search_alg: Any) -> Any:
    """Return the innermost searcher, which Tune may have wrapped to limit concurrency."""
    searcher = search_alg
    while hasattr(searcher, "searcher"):
        searcher = searcher.searcher
    return searcher
