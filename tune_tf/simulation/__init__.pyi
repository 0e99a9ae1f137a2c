from .multi_seed_runs import MultiSeedRuns, run_seeds
from .pairing import CONTESTANTS, Pairing, make_pairing, make_ray_pairing
from .problem import Problem
from .problems import PROBLEMS, make_problem
from .table import read_curve_table
from .trace import End, Event, Trace, VirtualTrial
from .virtual_sweep import simulate

__all__ = [
    "CONTESTANTS",
    "PROBLEMS",
    "End",
    "Event",
    "MultiSeedRuns",
    "Pairing",
    "Problem",
    "Trace",
    "VirtualTrial",
    "make_pairing",
    "make_problem",
    "make_ray_pairing",
    "read_curve_table",
    "run_seeds",
    "simulate",
]
