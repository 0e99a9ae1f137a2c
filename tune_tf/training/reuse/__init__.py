"""Reuse of traced programs across trials: fingerprints, checks and workload resets."""
