"""Schedulers that let trials run until they are stopped: FIFO, ASHA and the median rule."""

import math

from ray.tune.schedulers import AsyncHyperBandScheduler, MedianStoppingRule

from tune_tf.config.scheduler_settings import AshaSettings, FifoSettings, MedianStoppingSettings
from tune_tf.objective import Objective
from tune_tf.schedulers.outcome_mixin import OutcomeMixin, comparison_arguments


class FifoScheduler(OutcomeMixin):
    """Ray's ``FIFOScheduler`` with recorded trial outcomes; stops trials that diverge."""

    def __init__(self, objective: Objective, settings: FifoSettings) -> None:
        """Create Ray's scheduler."""
        super().__init__()
        self._configure(objective, settings)


class AshaScheduler(OutcomeMixin, AsyncHyperBandScheduler):
    """Ray's ``AsyncHyperBandScheduler`` with one bracket and recorded trial outcomes.

    Rungs are at ``grace_period * reduction_factor ** k`` iterations. A trial that reaches one with
    a value worse than the quantile ``1 - 1 / reduction_factor`` of those before it is stopped for
    good (https://arxiv.org/abs/1810.05934, with stopping in place of promotion). With few slots the
    first trials therefore run far.
    """

    settings: AshaSettings

    def __init__(self, objective: Objective, settings: AshaSettings) -> None:
        """Create Ray's scheduler with one bracket."""
        AsyncHyperBandScheduler.__init__(
            self,
            **comparison_arguments(objective),
            max_t=settings.max_t,
            grace_period=settings.grace_period,
            reduction_factor=settings.reduction_factor,
        )
        self._configure(objective, settings)

    @property
    def rungs(self) -> tuple[int, ...]:
        """Iterations at which trials are compared, ascending."""
        first, factor = self.settings.grace_period, self.settings.reduction_factor
        count = int(math.log(self.settings.max_t / first) / math.log(factor) + 1)  # as Ray counts
        return tuple(sorted({math.ceil(first * factor**k) for k in range(count)}))


class MedianStoppingScheduler(OutcomeMixin, MedianStoppingRule):
    """Ray's ``MedianStoppingRule`` with recorded trial outcomes.

    A trial is stopped if its best value so far is worse than the median of the other trials' means
    up to the same iteration (https://research.google/pubs/pub46180). With ``hard_stop=False`` it is
    paused, and continues when no other trial waits; its trainable must save checkpoints.
    """

    def __init__(self, objective: Objective, settings: MedianStoppingSettings) -> None:
        """Create Ray's scheduler."""
        MedianStoppingRule.__init__(
            self,
            **comparison_arguments(objective),
            grace_period=settings.grace_period,
            min_samples_required=settings.min_samples_required,
            hard_stop=settings.hard_stop,
        )
        self._configure(objective, settings)
