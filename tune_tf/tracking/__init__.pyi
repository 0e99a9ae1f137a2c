from .callback import MLflowCallback as MLflowCallback
from .endings import Endings as Endings
from .uri import check_tracking_uri as check_tracking_uri

__all__ = ["Endings", "MLflowCallback", "check_tracking_uri"]
