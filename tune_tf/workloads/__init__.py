"""Workloads that are ready to use."""
