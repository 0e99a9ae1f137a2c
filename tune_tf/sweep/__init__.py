"""Sweeps: what a sweep file asks for, planned, run and resumed."""

from tune_tf.sweep.plan import SweepPlan, plan_sweep
from tune_tf.sweep.run import resume_sweep, run_sweep

__all__ = ["SweepPlan", "plan_sweep", "resume_sweep", "run_sweep"]
