"""Generation of sweep files and workloads for the user's data."""

from tune_tf.scaffold.init_sweep import InitResult, init_sweep, write_example

__all__ = ["InitResult", "init_sweep", "write_example"]
