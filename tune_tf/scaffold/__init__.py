"""Generation of sweep files and workloads for the user's data."""

from tune_tf.scaffold.init_sweep import InitResult, init_sweep, write_example
from tune_tf.scaffold.settings_page import settings_page

__all__ = ["InitResult", "init_sweep", "settings_page", "write_example"]
