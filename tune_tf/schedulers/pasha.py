"""PASHA: promotion with a limit that grows while the ranking of the best trials changes."""

from tune_tf.config.scheduler_settings import PashaSettings
from tune_tf.objective import Objective
from tune_tf.schedulers.growing_rungs import GrowingRungs
from tune_tf.schedulers.promotion import PromotionAshaScheduler
from tune_tf.schedulers.rungs import rung_iterations


class PashaScheduler(PromotionAshaScheduler):
    """PASHA: promotion in which ``max_t`` starts at the second rung and grows on demand.

    See :class:`~tune_tf.schedulers.growing_rungs.GrowingRungs` for when it grows, and
    :class:`~tune_tf.schedulers.PromotionAshaScheduler` for all else.

    A trial at the highest open rung at the end of the sweep ran as far as any could and is
    completed; those waiting below are pruned. So all completed trials ran the same number of
    iterations, at most ``max_t``: train the best one further for a final model.

    Args:
        objective: The metric that trials are compared by.
        settings: Positions of the rungs.
    """

    settings: PashaSettings

    def __init__(self, objective: Objective, settings: PashaSettings) -> None:
        """Create the rungs."""
        iterations = rung_iterations(
            settings.grace_period, settings.reduction_factor, settings.max_t
        )
        super().__init__(objective, settings, GrowingRungs(iterations, settings.reduction_factor))
