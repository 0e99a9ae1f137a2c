"""How one trial is spread over devices."""

from tune_tf.parallelism.asynchronous import Asynchronous, Backend
from tune_tf.parallelism.mirrored import Mirrored
from tune_tf.parallelism.multi_worker import MultiWorker
from tune_tf.parallelism.setting_faults import Placement, Uneven

Parallelism = Mirrored | MultiWorker | Asynchronous
"""Any of the values that say how a trial is spread."""

__all__ = [
    "Asynchronous",
    "Backend",
    "Mirrored",
    "MultiWorker",
    "Parallelism",
    "Placement",
    "Uneven",
]
