from .asha import AshaScheduler
from .catalogue import scheduler
from .fifo import FifoScheduler
from .limits import Limits

__all__ = ["AshaScheduler", "FifoScheduler", "Limits", "scheduler"]
