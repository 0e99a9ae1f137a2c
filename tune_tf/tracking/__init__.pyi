from .callback import MLflowCallback as MLflowCallback
from .outcome_tracker import OutcomeTracker as OutcomeTracker
from .tags import SweepDetails as SweepDetails
from .uri import check_tracking_uri as check_tracking_uri

__all__ = ["MLflowCallback", "OutcomeTracker", "SweepDetails", "check_tracking_uri"]
