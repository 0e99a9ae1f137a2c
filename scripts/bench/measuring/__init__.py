"""Shared parts of the benchmarks: turns, ratios and their summary."""
