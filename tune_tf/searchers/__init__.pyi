from .optuna_searcher import OptunaSearcher
from .warm_start import WarmStart

__all__ = ["OptunaSearcher", "WarmStart"]
