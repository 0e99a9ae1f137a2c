"""Frozen layers at the beginning of a model, whose outputs a node computes once."""
