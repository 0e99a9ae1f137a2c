"""Kinds of parallelism: layouts of one trial over devices."""

from tune_tf.parallelism.asynchronous import Asynchronous
from tune_tf.parallelism.mirrored import Mirrored
from tune_tf.parallelism.model_parallel import Hybrid, ModelParallel
from tune_tf.parallelism.multi_worker import MultiWorker
from tune_tf.parallelism.parallelism import Parallelism
from tune_tf.parallelism.subtasks import Ensemble, Folds, Subtasks

PARALLELISM_KINDS = (Mirrored, MultiWorker, ModelParallel, Hybrid, Asynchronous, Folds, Ensemble)
"""All kinds of parallelism that a sweep file can name."""

__all__ = [
    "PARALLELISM_KINDS",
    "Asynchronous",
    "Ensemble",
    "Folds",
    "Hybrid",
    "Mirrored",
    "ModelParallel",
    "MultiWorker",
    "Parallelism",
    "Subtasks",
]
