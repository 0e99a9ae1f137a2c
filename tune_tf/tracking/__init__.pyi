from .callback import MLflowCallback as MLflowCallback
from .tracked_sweep import SweepDetails as SweepDetails
from .tracked_sweep import TrackedSweep as TrackedSweep
from .view import MLflowView as MLflowView

__all__ = ["MLflowCallback", "MLflowView", "SweepDetails", "TrackedSweep"]
