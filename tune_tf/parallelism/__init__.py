"""Kinds of parallelism: layouts of one trial over devices."""

from tune_tf.parallelism.asynchronous import Asynchronous
from tune_tf.parallelism.ensemble import Ensemble
from tune_tf.parallelism.folds import Folds
from tune_tf.parallelism.hybrid import Hybrid
from tune_tf.parallelism.mirrored import Mirrored
from tune_tf.parallelism.model_parallel import ModelParallel
from tune_tf.parallelism.multi_worker import MultiWorker
from tune_tf.parallelism.setting_errors import Placement, Uneven
from tune_tf.parallelism.subtasks import Subtasks

Parallelism = Mirrored | MultiWorker | ModelParallel | Hybrid | Asynchronous | Folds | Ensemble
"""Any kind of parallelism."""

__all__ = [
    "Asynchronous",
    "Ensemble",
    "Folds",
    "Hybrid",
    "Mirrored",
    "ModelParallel",
    "MultiWorker",
    "Parallelism",
    "Placement",
    "Subtasks",
    "Uneven",
]
