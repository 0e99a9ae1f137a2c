"""Loops in trials with callbacks."""

import keras
from trials import Given, begin, draw

from tune_tf.training.core.loop import GraphLoop


def build(config):
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(3)])
    model.compile(
        keras.optimizers.SGD(0.1), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    return model


def loop_with(replicas, *made):
    """Return a loop in a trial with callbacks."""
    workload = Given(build, draw(20, 8), callbacks=lambda config: made)
    return begin(GraphLoop(workload, replicas), workload)
