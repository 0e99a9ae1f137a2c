from .scheduler_contract import SchedulerContract
from .trainable_contract import TrainableContract

__all__ = ["SchedulerContract", "TrainableContract"]
