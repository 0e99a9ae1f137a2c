"""Saved state of a sweep, and its recovery after a crash."""
