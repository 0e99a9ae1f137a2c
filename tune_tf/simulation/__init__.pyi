from .multi_seed_runs import MultiSeedRuns, Pairing, make_pairing, make_ray_pairing, run_seeds
from .problem import Problem, read_curve_table
from .problems import PROBLEMS, make_problem
from .virtual_sweep import Event, StopReason, Trace, VirtualTrial, simulate

__all__ = [
    "PROBLEMS",
    "Event",
    "MultiSeedRuns",
    "Pairing",
    "Problem",
    "StopReason",
    "Trace",
    "VirtualTrial",
    "make_pairing",
    "make_problem",
    "make_ray_pairing",
    "read_curve_table",
    "run_seeds",
    "simulate",
]
