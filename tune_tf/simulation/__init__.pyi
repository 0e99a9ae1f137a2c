from .multi_seed_runs import MultiSeedRuns, run_seeds
from .pairing import PAIRINGS, Pairing, make_pairing, make_ray_pairing
from .problem import Problem
from .problems import PROBLEMS, make_problem
from .table import read_curve_table
from .trace import Event, StopReason, Trace, VirtualTrial
from .virtual_sweep import simulate

__all__ = [
    "PAIRINGS",
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
