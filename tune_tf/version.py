"""The version of tune_tf."""

__version__ = "0.1.0"
