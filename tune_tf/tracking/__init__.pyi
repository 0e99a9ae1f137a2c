from .callback import MLflowCallback as MLflowCallback
from .descriptions import SweepDetails as SweepDetails
from .outcome_tracker import OutcomeTracker as OutcomeTracker

__all__ = ["MLflowCallback", "OutcomeTracker", "SweepDetails"]
