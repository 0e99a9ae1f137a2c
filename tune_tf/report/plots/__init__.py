"""Plots of the report."""
