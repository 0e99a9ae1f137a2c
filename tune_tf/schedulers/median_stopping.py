"""A trial that never was as good as the median of the others is stopped."""

from ray.tune.schedulers import MedianStoppingRule

from tune_tf.config.scheduler_settings import MedianStoppingSettings
from tune_tf.objective import Objective
from tune_tf.result_keys import TRAINING_ITERATION
from tune_tf.schedulers.outcome_mixin import OutcomeMixin


class MedianStoppingScheduler(OutcomeMixin, MedianStoppingRule):
    """Ray's ``MedianStoppingRule``, which tells why a trial ended.

    A trial is stopped whose best value so far is worse than the median of the other trials' means
    up to the same iteration (https://research.google/pubs/pub46180). With ``hard_stop=False`` it is
    paused, and goes on when no other trial waits to start; its trainable has to save checkpoints.

    Args:
        objective: The metric that is compared.
        settings: From when on, and how many trials have to be known.
    """

    def __init__(self, objective: Objective, settings: MedianStoppingSettings) -> None:
        """Make Ray's scheduler."""
        MedianStoppingRule.__init__(
            self,
            time_attr=TRAINING_ITERATION,
            metric=objective.metric,
            mode=objective.mode,
            grace_period=settings.grace_period,
            min_samples_required=settings.min_samples_required,
            hard_stop=settings.hard_stop,
        )
        self._begin(objective, settings)
