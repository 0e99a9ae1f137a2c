"""Parallel preparation of records on the Ray cluster."""
