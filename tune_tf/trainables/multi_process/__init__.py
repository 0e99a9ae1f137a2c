"""Trials in processes of their own: start, heartbeats, workers and parameter server."""
