"""Workloads of KerasTuner hypermodels."""
