"""Generation of sweep files and workloads for the user's data."""

from tune_tf.scaffold.init_sweep import Written, init_sweep

__all__ = ["Written", "init_sweep"]
