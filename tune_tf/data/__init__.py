"""Preparation, shared loading and validation of a trial's data."""

from tune_tf.data.folded_rows import FoldedRows
from tune_tf.data.loading import DataLoader, has_loaded
from tune_tf.data.preparation import prepared
from tune_tf.data.rows import Rows, first_rows, rows_of

__all__ = [
    "DataLoader",
    "FoldedRows",
    "Rows",
    "first_rows",
    "has_loaded",
    "prepared",
    "rows_of",
]
