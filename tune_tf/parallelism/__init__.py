"""How one trial is spread over devices."""

from tune_tf.parallelism.hybrid import Hybrid
from tune_tf.parallelism.mirrored import Mirrored
from tune_tf.parallelism.model_parallel import ModelParallel
from tune_tf.parallelism.multi_worker import MultiWorker
from tune_tf.parallelism.setting_faults import Placement, Uneven

Parallelism = Mirrored | MultiWorker | ModelParallel | Hybrid
"""Any of the values that say how a trial is spread."""

__all__ = [
    "Hybrid",
    "Mirrored",
    "ModelParallel",
    "MultiWorker",
    "Parallelism",
    "Placement",
    "Uneven",
]
