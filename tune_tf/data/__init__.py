"""A trial's data: prepared and loaded once, checked, and ready to place on devices."""

from tune_tf.data.bad_record import BadRecord
from tune_tf.data.folded_rows import FoldedRows
from tune_tf.data.loads import LoadCache
from tune_tf.data.pipeline import Pipeline
from tune_tf.data.prepared import Prepared, prepared
from tune_tf.data.preparer import PreparationCounts, preparation_counts
from tune_tf.data.rows import Rows, first_rows, rows_of
from tune_tf.data.shared_loads import SharedLoads
from tune_tf.data.vectorized import vectorized

__all__ = [
    "BadRecord",
    "FoldedRows",
    "LoadCache",
    "Pipeline",
    "PreparationCounts",
    "Prepared",
    "Rows",
    "SharedLoads",
    "first_rows",
    "preparation_counts",
    "prepared",
    "rows_of",
    "vectorized",
]
