from .callback import MLflowCallback as MLflowCallback
from .details import SweepDetails as SweepDetails
from .endings import Endings as Endings
from .uri import check_tracking_uri as check_tracking_uri

__all__ = ["Endings", "MLflowCallback", "SweepDetails", "check_tracking_uri"]
