"""Ready-made workloads."""
