from .optuna_searcher import OptunaSearcher

__all__ = ["OptunaSearcher"]
