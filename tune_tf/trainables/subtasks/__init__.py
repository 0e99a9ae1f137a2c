"""Trials of independent models: folds and ensembles."""
