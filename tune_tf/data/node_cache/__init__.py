"""Data loaded once per node and shared by the trials on it."""
