from .multi_seed_runs import MultiSeedRuns, Pairing, make_pairing, run_seeds
from .problem import Problem, read_curve_table
from .problems import PROBLEMS, make_problem
from .virtual_sweep import SweepEndReason, Trace, VirtualResult, VirtualTrial, simulate

__all__ = [
    "PROBLEMS",
    "MultiSeedRuns",
    "Pairing",
    "Problem",
    "SweepEndReason",
    "Trace",
    "VirtualResult",
    "VirtualTrial",
    "make_pairing",
    "make_problem",
    "read_curve_table",
    "run_seeds",
    "simulate",
]
