"""Views of a sweep, read from its folder alone, also while it runs or after a crash."""

from tune_tf.inspection.sweep_view import SweepState, SweepView, list_sweeps
from tune_tf.inspection.trial_view import TrialView

__all__ = ["SweepState", "SweepView", "TrialView", "list_sweeps"]
