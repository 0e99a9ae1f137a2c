"""Baselines of the benchmarks, as users write them."""
