from .catalogue import scheduler
from .freeze_thaw import FreezeThawScheduler
from .pb2 import Pb2Scheduler
from .population import PbtScheduler
from .promotion import PashaScheduler, PromotionAshaScheduler
from .resource_changing import ResizingScheduler
from .stopping import (
    AshaScheduler,
    BohbScheduler,
    FifoScheduler,
    HyperbandScheduler,
    MedianStoppingScheduler,
)

__all__ = [
    "AshaScheduler",
    "BohbScheduler",
    "FifoScheduler",
    "FreezeThawScheduler",
    "HyperbandScheduler",
    "MedianStoppingScheduler",
    "PashaScheduler",
    "Pb2Scheduler",
    "PbtScheduler",
    "PromotionAshaScheduler",
    "ResizingScheduler",
    "scheduler",
]
