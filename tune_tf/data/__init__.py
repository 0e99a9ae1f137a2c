"""A trial's data: loaded once, checked, and ready to place on devices."""

from tune_tf.data.folded_rows import FoldedRows
from tune_tf.data.loads import LoadCache
from tune_tf.data.pipeline import Pipeline
from tune_tf.data.rows import Rows, first_rows, rows_of
from tune_tf.data.shared_loads import SharedLoads
from tune_tf.data.vectorized import vectorized

__all__ = [
    "FoldedRows",
    "LoadCache",
    "Pipeline",
    "Rows",
    "SharedLoads",
    "first_rows",
    "rows_of",
    "vectorized",
]
