from .callback import MLflowCallback as MLflowCallback
from .outcome_tracker import Endings as Endings
from .tags import SweepDetails as SweepDetails
from .uri import check_tracking_uri as check_tracking_uri

__all__ = ["Endings", "MLflowCallback", "SweepDetails", "check_tracking_uri"]
