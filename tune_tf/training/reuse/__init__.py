"""Reuse of traced programs across trials."""
