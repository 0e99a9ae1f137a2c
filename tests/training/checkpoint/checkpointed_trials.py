"""Trials that are saved, and go on from their checkpoint."""

import keras
from trials import Given, begin, draw

from tune_tf.training.checkpoint import Checkpoint
from tune_tf.training.loop import GraphLoop

layers = keras.layers


def build(config):
    """Build a model with slots, a penalty, statistics and, where asked for, random states."""
    model = keras.Sequential(
        [
            keras.Input((6,)),
            layers.Dense(config.get("width", 8), activation="relu", kernel_regularizer="l2"),
            layers.BatchNormalization(synchronized=True),
            layers.Dropout(config.get("dropout", 0.0)),
            layers.Dense(3),
        ]
    )
    optimizer = keras.optimizers.SGD(
        config.get("rate", 0.05),
        momentum=config.get("momentum", 0.9),
        global_clipnorm=0.5,
        use_ema=config.get("ema", False),
    )
    model.compile(
        optimizer,
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


WORKLOAD = Given(build, draw(45, 19))


def saved_after(num_epochs, replicas, folder, config=None, workload=WORKLOAD):
    """Save a trial after some epochs."""
    loop = begin(GraphLoop(replicas), workload, config)
    for _ in range(num_epochs):
        loop.epoch()
    loop.state().write(folder)


def gone_on(num_epochs, replicas, folder, config=None, workload=WORKLOAD, loop=None):
    """Restore a trial in a fresh loop and train on, as ``run`` returns it."""
    loop = begin(loop or GraphLoop(replicas), workload, config, seed=99)
    loop.restore(Checkpoint.read(folder))
    history = [loop.epoch() for _ in range(num_epochs)]
    model = loop.trial.program.model
    return history, [v.numpy() for v in (*model.variables, *model.optimizer.variables)]
