"""Ray Tune Trainables that train TensorFlow models, one kind of parallelism each."""

from tune_tf.trainables.factory import trainable
from tune_tf.trainables.mirrored import MirroredTrainable

__all__ = ["MirroredTrainable", "trainable"]
