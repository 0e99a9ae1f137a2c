from .model_search import search as search
from .plan import SweepPlan as SweepPlan
from .plan import plan_sweep as plan_sweep
from .run import extend_sweep as extend_sweep
from .run import resume_sweep as resume_sweep
from .run import run_sweep as run_sweep
from .stop import stop_sweep as stop_sweep
from .stop import stop_trials as stop_trials

__all__ = [
    "SweepPlan",
    "extend_sweep",
    "plan_sweep",
    "resume_sweep",
    "run_sweep",
    "search",
    "stop_sweep",
    "stop_trials",
]
