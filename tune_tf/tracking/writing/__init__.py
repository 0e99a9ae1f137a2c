"""Queued, crash-safe writes of run updates to MLflow."""
