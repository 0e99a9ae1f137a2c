from .optuna_searcher import OptunaSearcher
from .replay import ReplayedTrial
from .study_view import StudyView
from .warm_start import WarmStart

__all__ = ["OptunaSearcher", "ReplayedTrial", "StudyView", "WarmStart"]
