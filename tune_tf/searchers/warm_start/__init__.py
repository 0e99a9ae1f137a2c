"""Trials of earlier sweeps, imported into a study."""
