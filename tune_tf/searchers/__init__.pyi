from .optuna_searcher import OptunaSearcher
from .replay import ReplayedTrial
from .warm_start import WarmStart

__all__ = ["OptunaSearcher", "ReplayedTrial", "WarmStart"]
