"""Every trial runs to its limit, in the order of arrival."""

from tune_tf.objective import Objective
from tune_tf.schedulers.limits import Limits
from tune_tf.schedulers.telling import Telling


class FifoScheduler(Telling):
    """Ray's ``FIFOScheduler``, which tells why a trial ended and stops those that diverge.

    Args:
        objective: The metric that is watched for NaN and Inf.
        limits: ``max_t`` ends a trial; the others are not used.
    """

    def __init__(self, objective: Objective, limits: Limits) -> None:
        """Make Ray's scheduler."""
        super().__init__()
        self._begin(objective, limits)
