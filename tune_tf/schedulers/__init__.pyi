from .asha import AshaScheduler
from .bohb import BohbScheduler
from .catalogue import scheduler
from .fifo import FifoScheduler
from .hyperband import HyperbandScheduler
from .median_stopping import MedianStoppingScheduler
from .pasha import PashaScheduler
from .pb2 import Pb2Scheduler
from .pbt import PbtScheduler
from .promotion import PromotionAshaScheduler
from .resource_changing import ResizingScheduler

__all__ = [
    "AshaScheduler",
    "BohbScheduler",
    "FifoScheduler",
    "HyperbandScheduler",
    "MedianStoppingScheduler",
    "PashaScheduler",
    "Pb2Scheduler",
    "PbtScheduler",
    "PromotionAshaScheduler",
    "ResizingScheduler",
    "scheduler",
]
