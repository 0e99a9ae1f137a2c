from .callback import MLflowCallback as MLflowCallback
from .descriptions import SweepDetails as SweepDetails
from .outcome_tracker import OutcomeTracker as OutcomeTracker
from .store import check_tracking_uri as check_tracking_uri

__all__ = ["MLflowCallback", "OutcomeTracker", "SweepDetails", "check_tracking_uri"]
