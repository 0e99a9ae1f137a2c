"""Processes of trials that train in several processes."""
