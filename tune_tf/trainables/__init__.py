"""Ray Tune trainables for TensorFlow models, one for each kind of parallelism."""

from tune_tf.trainables.asynchronous import AsynchronousTrainable
from tune_tf.trainables.factory import trainable
from tune_tf.trainables.folds import FoldsTrainable
from tune_tf.trainables.memory.oom_retries import OomRetries
from tune_tf.trainables.mirrored import MirroredTrainable, ModelParallelTrainable
from tune_tf.trainables.multi_worker import MultiWorkerTrainable

__all__ = [
    "AsynchronousTrainable",
    "FoldsTrainable",
    "MirroredTrainable",
    "ModelParallelTrainable",
    "MultiWorkerTrainable",
    "OomRetries",
    "trainable",
]
