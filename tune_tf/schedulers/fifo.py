"""First-in, first-out scheduling without early stopping."""

from tune_tf.config.scheduler_settings import FifoSettings
from tune_tf.objective import Objective
from tune_tf.schedulers.outcome_mixin import OutcomeMixin


class FifoScheduler(OutcomeMixin):
    """Ray's ``FIFOScheduler`` with recorded trial outcomes; stops trials that diverge.

    Args:
        objective: The metric that is checked for NaN and Inf.
        settings: The limit of a trial.
    """

    def __init__(self, objective: Objective, settings: FifoSettings) -> None:
        """Create Ray's scheduler."""
        super().__init__()
        self._configure(objective, settings)
