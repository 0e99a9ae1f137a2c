"""What these tests share."""

from sweep_in_progress import ended, sweep, sweeps

__all__ = ["ended", "sweep", "sweeps"]
