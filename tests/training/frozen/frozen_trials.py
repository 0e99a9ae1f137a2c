"""Loops with and without shared outputs of frozen layers, and callbacks that change the layers."""

import tempfile
from pathlib import Path

import keras
from frozen_models import pretrained

from tune_tf.data.node_store import NodeStore
from tune_tf.parallelism import Mirrored
from tune_tf.training.frozen.frozen_outputs import FrozenOutputs
from tune_tf.training.loop import GraphLoop


class Counted(NodeStore):
    """Cache that counts computations."""

    num_computed = 0
    max_bytes = 1e9

    def __init__(self):
        self._folder = tempfile.TemporaryDirectory()
        super().__init__(Path(self._folder.name))

    def get(self, key, compute):
        def counted():
            self.num_computed += 1
            return compute()

        return super().get(key, counted)


def loop_with(workload, replicas, cache=None, **spread):
    """Return a loop that shares outputs, in a cache, or one that does not."""
    frozen = None if cache is None else FrozenOutputs(replicas, cache)
    return GraphLoop(replicas, Mirrored(replicas.num, **spread), frozen=frozen)


class ChangesWeights(keras.callbacks.Callback):
    """Sets the weights of the frozen layers at the beginning of the second epoch."""

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 1:
            pretrained(self.model.get_layer("backbone"), 99)


class ChangesWeightsEachTime(keras.callbacks.Callback):
    """Sets the weights of the frozen layers before each epoch but the first, and a number.

    As in ``fit``, a number of the optimizer that is read while it is traced stays what it was.
    """

    def on_epoch_begin(self, epoch, logs=None):
        if epoch:
            pretrained(self.model.get_layer("backbone"), 99 + epoch)
            self.model.optimizer.beta_1 = 0.5


class FreezesLast(keras.callbacks.Callback):
    """Does not train the last layer."""

    def on_train_begin(self, logs=None):
        self.model.layers[-1].trainable = False
