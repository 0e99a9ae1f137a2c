"""Asynchronous successive halving: a trial worse than most at a rung is stopped there."""

from ray.tune.schedulers import AsyncHyperBandScheduler

from tune_tf.objective import Objective
from tune_tf.schedulers.limits import Limits
from tune_tf.schedulers.telling import TIME, Telling


class AshaScheduler(Telling, AsyncHyperBandScheduler):
    """Ray's ``AsyncHyperBandScheduler`` with one bracket, which tells why a trial ended.

    Rungs stand at ``grace_period * reduction_factor ** k`` iterations. A trial that reaches one
    with a value worse than the quantile ``1 - 1 / reduction_factor`` of those before it is stopped,
    and never taken up again (https://arxiv.org/abs/1810.05934, with stopping in place of
    promotion). With few slots the first trials therefore run far.

    Args:
        objective: The metric that is compared.
        limits: Where the rungs stand.
    """

    def __init__(self, objective: Objective, limits: Limits) -> None:
        """Make Ray's scheduler with one bracket."""
        AsyncHyperBandScheduler.__init__(
            self,
            time_attr=TIME,
            metric=objective.metric,
            mode=objective.mode,
            max_t=limits.max_t,
            grace_period=limits.grace_period,
            reduction_factor=limits.reduction_factor,
        )
        self._begin(objective, limits)
