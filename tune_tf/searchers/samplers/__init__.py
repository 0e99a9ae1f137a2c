"""Optuna's samplers by name."""
