"""Ray Tune Trainables that train TensorFlow models, one kind of parallelism each."""

from tune_tf.trainables.factory import trainable
from tune_tf.trainables.mirrored import MirroredTrainable
from tune_tf.trainables.multi_worker import MultiWorkerTrainable

__all__ = ["MirroredTrainable", "MultiWorkerTrainable", "trainable"]
