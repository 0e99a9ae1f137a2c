"""Sweep files and workloads to start from, written for data of one's own."""

from tune_tf.scaffold.init_sweep import Written, init_sweep

__all__ = ["Written", "init_sweep"]
