"""Asynchronous training with a parameter server."""
