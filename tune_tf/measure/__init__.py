"""Measurements of a sweep before it runs: dry run, costs and upper bounds, scaling."""
