"""Forecasts of sweeps and scaling measurements of workloads."""
