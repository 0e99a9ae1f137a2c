"""Scheduling of a trial's independent models: folds and ensemble members."""
