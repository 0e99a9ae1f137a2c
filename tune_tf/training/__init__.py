"""Inside a trial: devices, strategy, programs, the epoch loop, checkpoints and seeds.

Importing the package is cheap; its modules load TensorFlow.
"""

from tune_tf.training.lazy_keras import load_lazily

load_lazily()
