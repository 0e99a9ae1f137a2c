from .catalogue import scheduler
from .hyperband import BohbScheduler, HyperbandScheduler
from .pb2 import Pb2Scheduler
from .population import PbtScheduler
from .promotion import PashaScheduler, PromotionAshaScheduler
from .resource_changing import ResizingScheduler
from .stopping import AshaScheduler, FifoScheduler, MedianStoppingScheduler

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
