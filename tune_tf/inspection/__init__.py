"""Views of a sweep, read from its folder alone, also while it runs or after a crash."""

from tune_tf.inspection.sweep_view import SweepState, SweepView
from tune_tf.inspection.sweeps import Comparison, SweepList, compare_sweeps, list_sweeps
from tune_tf.inspection.trial_rows import TrialRows
from tune_tf.inspection.trial_view import TrialView

__all__ = [
    "Comparison",
    "SweepList",
    "SweepState",
    "SweepView",
    "TrialRows",
    "TrialView",
    "compare_sweeps",
    "list_sweeps",
]
