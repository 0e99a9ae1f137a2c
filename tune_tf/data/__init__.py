"""Preparation, shared loading and validation of a trial's data."""

from tune_tf.data.folded_rows import FoldedRows
from tune_tf.data.node_cache.load_cache import LoadCache
from tune_tf.data.node_cache.shared_loads import SharedLoads
from tune_tf.data.pipeline import Pipeline
from tune_tf.data.prepare.chunk import BadRecord
from tune_tf.data.prepare.prepare_actor import PreparationCounts, preparation_counts
from tune_tf.data.prepare.prepared import Prepared, prepared
from tune_tf.data.prepare.vectorized import vectorized
from tune_tf.data.rows import Rows, first_rows, rows_of

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
