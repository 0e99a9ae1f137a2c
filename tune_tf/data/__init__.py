"""Preparation, shared loading and validation of a trial's data."""

from tune_tf.data.folded_rows import FoldedRows
from tune_tf.data.node_cache.node_cache import LoadCache, NodeDataLoader, start_node_cache
from tune_tf.data.pipeline import Pipeline
from tune_tf.data.prepare.prepare_actor import PreparationCounts, preparation_counts
from tune_tf.data.prepare.prepared import BadRecord, Prepared, prepared
from tune_tf.data.rows import Rows, first_rows, rows_of
from tune_tf.data.vectorized import vectorized

__all__ = [
    "BadRecord",
    "FoldedRows",
    "LoadCache",
    "NodeDataLoader",
    "Pipeline",
    "PreparationCounts",
    "Prepared",
    "Rows",
    "first_rows",
    "preparation_counts",
    "prepared",
    "rows_of",
    "start_node_cache",
    "vectorized",
]
