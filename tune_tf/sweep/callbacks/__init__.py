"""Callbacks of a running sweep."""
