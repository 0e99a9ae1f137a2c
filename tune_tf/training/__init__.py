"""Training of one trial: devices, programs, epoch loops, checkpoints and seeds."""

from tune_tf.training.lazy_keras import load_lazily

load_lazily()
