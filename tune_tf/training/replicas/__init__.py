"""Batches that replicas, pieces or stages share, with the numbers of one device."""
