"""Columns, files and serving of tabular data."""
