"""Every trial runs to its limit, in the order of arrival."""

from tune_tf.config.scheduler_settings import FifoSettings
from tune_tf.objective import Objective
from tune_tf.schedulers.outcome_mixin import OutcomeMixin


class FifoScheduler(OutcomeMixin):
    """Ray's ``FIFOScheduler``, which tells why a trial ended and stops those that diverge.

    Args:
        objective: The metric that is watched for NaN and Inf.
        settings: Where a trial ends.
    """

    def __init__(self, objective: Objective, settings: FifoSettings) -> None:
        """Make Ray's scheduler."""
        super().__init__()
        self._begin(objective, settings)
