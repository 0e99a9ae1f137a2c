"""Median stopping rule."""

from ray.tune.schedulers import MedianStoppingRule

from tune_tf.config.scheduler_settings import MedianStoppingSettings
from tune_tf.objective import Objective
from tune_tf.result_keys import TRAINING_ITERATION
from tune_tf.schedulers.outcome_mixin import OutcomeMixin


class MedianStoppingScheduler(OutcomeMixin, MedianStoppingRule):
    """Ray's ``MedianStoppingRule`` with recorded trial outcomes.

    A trial is stopped if its best value so far is worse than the median of the other trials' means
    up to the same iteration (https://research.google/pubs/pub46180). With ``hard_stop=False`` it is
    paused, and continues when no other trial waits; its trainable must save checkpoints.

    Args:
        objective: The metric that trials are compared by.
        settings: Grace period and number of trials required.
    """

    def __init__(self, objective: Objective, settings: MedianStoppingSettings) -> None:
        """Create Ray's scheduler."""
        MedianStoppingRule.__init__(
            self,
            time_attr=TRAINING_ITERATION,
            metric=objective.metric,
            mode=objective.mode,
            grace_period=settings.grace_period,
            min_samples_required=settings.min_samples_required,
            hard_stop=settings.hard_stop,
        )
        self._configure(objective, settings)
