"""Optuna samplers by name."""
