"""Hyperband as BOHB's searcher expects it: one bracket is filled after the other."""

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
    """Ray's ``HyperBandForBOHB``, which tells why a trial ended and takes any searcher.

    The largest bracket comes first, and its trials wait until it is full or no more trials come.
    That makes it the one to choose where few trials run at a time: Hyperband's brackets go on with
    those that are there.

    Args:
        objective: The metric that is compared.
        settings: Where the milestones stand.
    """

    def __init__(self, objective: Objective, settings: BohbSettings) -> None:
        """Make Ray's scheduler."""
        HyperBandForBOHB.__init__(
            self,
            time_attr=TRAINING_ITERATION,
            metric=objective.metric,
            mode=objective.mode,
            max_t=settings.max_t,
            reduction_factor=settings.reduction_factor,
        )
        self._begin(objective, settings)

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        """Return what Ray's scheduler decides."""
        return super().on_trial_result(_seen(tune_controller), trial, result)

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        """Write the reason of the end, then let Ray's scheduler clean up."""
        super().on_trial_complete(_seen(tune_controller), trial, result)

    def on_trial_remove(self, tune_controller: Any, trial: Trial) -> None:
        """Write the reason of the end, then let Ray's scheduler clean up."""
        super().on_trial_remove(_seen(tune_controller), trial)

    def on_trial_error(self, tune_controller: Any, trial: Trial) -> None:
        """Let Ray's scheduler clean up."""
        super().on_trial_error(_seen(tune_controller), trial)

    def choose_trial_to_run(self, tune_controller: Any, **options: Any) -> Trial | None:
        """Return the trial to run next."""
        return super().choose_trial_to_run(_seen(tune_controller), **options)

    def _forgotten(self) -> list[Any]:
        """Return nothing: Ray's scheduler waits for a bracket to fill, and looks for itself."""
        return []


def _seen(controller: Any) -> Any:
    """Return a controller whose searcher can be told of pauses, as Ray takes for granted."""
    if isinstance(controller, ControllerProxy):
        return controller
    searcher = _innermost(getattr(controller, "search_alg", None))
    if hasattr(searcher, "on_pause"):
        return controller
    nobody = SimpleNamespace(on_pause=lambda _: None, on_unpause=lambda _: None)
    return ControllerProxy(controller, search_alg=SimpleNamespace(searcher=nobody))


def _innermost(search_alg: Any) -> Any:
    """Return the searcher that Tune has wrapped, to limit how many trials run at a time."""
    searcher = search_alg
    while hasattr(searcher, "searcher"):
        searcher = searcher.searcher
    return searcher
