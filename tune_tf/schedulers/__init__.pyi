from .catalogue import scheduler
from .freeze_thaw import FreezeThawScheduler
from .pb2 import Pb2Scheduler
from .population import PbtScheduler
from .stopping import FifoScheduler

__all__ = [
    "FifoScheduler",
    "FreezeThawScheduler",
    "Pb2Scheduler",
    "PbtScheduler",
    "scheduler",
]
