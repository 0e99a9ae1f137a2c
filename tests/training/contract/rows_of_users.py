"""Rows with code of the user's, which is traced anew for each trial."""

import collections
import functools
import random
import types

import keras
import numpy as np
import tensorflow as tf
import users_code as own
from contract_row import NUMBERS, ONE, SEQUENCES, Row, draw, layers, of, optimizers, stacked

ops = keras.ops


def layer(change, *values, graph="users_code", **how):
    """Return a row with a layer that is made of each config."""
    return of(
        lambda value: stacked(layers.Dense(4), change(value), layers.Dense(3)),
        *values,
        graph=graph,
        **how,
    )


def workload(made, *values, graph="train_step", by_fit=True):
    """Return a row of a workload."""
    return Row(made, [{"value": value} for value in values], graph, by_fit)


def loss(make, *values, graph, data=NUMBERS, **out):
    return of(
        lambda v: stacked(layers.Dense(4), data=data, loss=make(v), **out),
        *values,
        graph=graph,
        data=data,
    )


ROWS = {
    # Finding 1 of what a callback or a workload holds of build_model
    "variable of a loss that a callback anneals": workload(
        own.Anneals(), 0.5, 2.0, graph="users_code"
    ),
    "optimizer and model that the workload keeps": workload(own.KeepsParts(), 0.5, 0.8, graph=ONE),
    # Finding 2: attributes with names of Keras' bookkeeping
    **{
        f"layer with an attribute named {name}": layer(functools.partial(own.Named, name), 0.5, 2.0)
        for name in ("quantize", "history")
    },
    "build of a layer's instance": of(own.patched_build, 0.5, 2.0, graph="build"),
    # Finding 3: state of the workload
    "layers that the workload keeps": workload(own.KeepsLayers(), 0, 1, graph="several"),
    **{
        f"{kind} that the workload keeps": workload(own.KeepsState(kind), 0.5, 1.0, graph=ONE)
        for kind in ("generator", "random", "cycle", "array", "cache")
    },
    # Finding 4: they draw by the trial's seed, from a state inside of TensorFlow's kernels
    **{
        f"operation of TensorFlow with seed {seed}": layer(
            lambda k, seed=seed: layers.Lambda(lambda x: x + k * tf.random.normal((4,), seed=seed)),
            0.5,
            1.0,
            graph="lambda",
            by_fit=False,
            restarts=False,
        )
        for seed in (5, None)
    },
    # Finding 5: variables of the first call
    "variable that a loss makes": loss(own.CountingLoss, 0.1, 1.0, graph="CountingLoss"),
    "variable that a regularizer makes": of(
        lambda k: stacked(layers.Dense(4, kernel_regularizer=own.CountingRegularizer(k))),
        0.01,
        0.1,
        graph="CountingRegularizer",
    ),
    "variable of a loss that build_model makes": loss(
        lambda k: own.CountingLoss(k, own.count_from(1.0)), 0.1, 1.0, graph="CountingLoss"
    ),
    "variable of a regularizer that build_model makes": of(
        lambda k: stacked(
            layers.Dense(4, kernel_regularizer=own.CountingRegularizer(k, own.count_from(0.1)))
        ),
        0.01,
        0.1,
        graph="CountingRegularizer",
    ),
    "variable that a metric makes": of(
        lambda k: stacked(metrics=[own.CountingMetric(k)]), 0.5, 2.0, graph="CountingMetric"
    ),
    "variable that compute_loss makes": of(
        lambda k: own.with_attribute(stacked(layers.Dense(4), model=own.CountingModel), "step", k),
        0.1,
        1.0,
        graph="CountingModel",
    ),
    "variable that train_step makes": workload(own.StepWithCount(), 0.5, 2.0),
    # Finding 6
    "callback that sets momentum": of(
        lambda m: stacked(layers.Dense(4)),
        0.5,
        0.9,
        callbacks=lambda config: [own.Sets("momentum", config["value"])],
    ),
    "callback that changes a layer": of(
        lambda rate: stacked(layers.Dense(4), layers.LeakyReLU(0.1)),
        0.2,
        0.5,
        graph="several",
        callbacks=lambda config: [own.Sets("negative_slope", config["value"], 1)],
    ),
    "callback that freezes a layer": of(
        lambda which: stacked(layers.Dense(4, "relu"), layers.Dense(4, "tanh")),
        0,
        1,
        graph="several",
        callbacks=lambda config: [own.Sets("trainable", False, config["value"])],
    ),
    "callback that draws": of(
        lambda rate: stacked(layers.Dropout(rate)),
        0.2,
        0.5,
        callbacks=lambda config: [own.DrawnRate()],
    ),
    # Finding 7: numbers that code in C reads
    **{
        f"number read by {name}": of(
            lambda rate, read=read: stacked(layers.Dense(4), own.Reads(rate, read)),
            0.3,
            0.5,
            graph="Reads",
        )
        for name, read in own.READ_BY_C.items()
    },
    # Steps of the user's
    "train_step reads the model": workload(own.StepOfModel(), 0.5, 2.0),
    "train_step reads the workload": workload(own.StepOfWorkload(), 0.5, 2.0),
    "train_step reads a threading.local": workload(own.StepOfThread(), 0.5, 2.0),
    # By fit it draws from where the process' own generator stands.
    "train_step draws": workload(own.StepByChance(), 0.5, 1.0, by_fit=False),
    "two models without a call that train one another": of(
        own.adversaries, 3, 4, graph="Adversaries", data=draw(20, 0)
    ),
    "model without a call": of(own.walks, 0.5, 2.0, graph="Walks", data=draw(20, 0)),
    "test_step": of(
        lambda k: own.with_attribute(stacked(layers.Dense(4), model=own.OwnTest), "factor", k),
        0.5,
        2.0,
        graph="OwnTest",
    ),
    # Methods of instances
    "compute_loss of an instance": of(
        own.patched("compute_loss", own.weighed_loss), 0.5, 2.0, graph="compute_loss"
    ),
    "train_step of an instance": of(
        own.patched("train_step", own.weighed_step), 0.5, 2.0, graph="step"
    ),
    "call of an instance": of(own.patched("call", own.weighed_call), 0.5, 2.0, graph="call"),
    "call of a layer's instance": of(own.patched_layer, 0.5, 2.0, graph="lambda"),
    # Layers of the user's
    "closure": layer(lambda k: own.Does(lambda x: k * x), 0.5, 2.0),
    "Lambda layer": layer(lambda k: layers.Lambda(lambda x: k * x), 0.5, 2.0, graph="lambda"),
    "activation called like one of Keras'": of(
        lambda k: stacked(layers.Dense(4, activation=own.scaling("leaky_relu", k))),
        0.5,
        2.0,
        graph="leaky_relu",
    ),
    "module global": layer(own.set_global, 0.5, 2.0),
    "item of a module global": layer(own.set_item, 0.5, 2.0),
    "class attribute": layer(own.set_class, 0.5, 2.0),
    "partial": layer(lambda k: own.Does(functools.partial(ops.multiply, k)), 0.5, 2.0),
    "bound method": layer(
        lambda k: own.Does(types.SimpleNamespace(f=own.scaling("f", k)).f), 0.5, 2.0
    ),
    "array": layer(lambda k: own.Holds(np.float32([k, 1, 1, 1])), 0.5, 2.0),
    "constant": layer(lambda k: own.Holds(tf.constant([k, 1.0, 1.0, 1.0])), 0.5, 2.0),
    "variable of TensorFlow": layer(lambda k: own.Holds(tf.Variable(k, trainable=False)), 0.5, 2.0),
    "number drawn while the model is built": layer(lambda k: own.Holds(random.random()), 1, 2),
    "random.Random": layer(lambda k: own.Draws(random.Random(k)), 1, 2, by_fit=False),
    "numpy generator": layer(lambda k: own.Draws(np.random.default_rng(k)), 1, 2, by_fit=False),
    "generator of TensorFlow": layer(own.Noisy, 1, 2),
    "maxlen of a deque": layer(
        lambda k: own.Does(lambda x, d=collections.deque(maxlen=k): x * float(d.maxlen)), 1, 2
    ),
    "default of a lookup table": layer(own.Looked, 0.5, 2.0),
    "layer that adds a loss": layer(own.AddsLoss, 0.5, 2.0),
    "layer that moves its own weight": layer(own.Centers, 0.1, 0.5),
    "subclassed model": of(own.by_hand, 0.5, 2.0, graph="ByHand"),
    # Losses and metrics of the user's
    "own loss": loss(own.OwnLoss, 1.0, 2.0, graph="OwnLoss"),
    "loss function of rows": loss(
        lambda k: lambda y, p: k * ops.mean(ops.square(y - p), -1), 0.5, 2.0, graph="lambda"
    ),
    "loss function of the batch": loss(
        lambda k: lambda y, p: k * ops.mean(ops.square(y - p)), 0.5, 2.0, graph="lambda"
    ),
    "own metric": of(
        lambda k: stacked(metrics=[own.with_attribute(own.OwnMetric(), "factor", k)]),
        0.5,
        2.0,
        graph="OwnMetric",
    ),
    "metric with several results": of(
        lambda k: stacked(metrics=[own.with_attribute(own.Errors(), "factor", k)]),
        0.5,
        2.0,
        graph="Errors",
    ),
    "metric of a whole batch": of(
        lambda width: stacked(layers.Dense(width), metrics=[own.Correlation()]),
        3,
        4,
        graph="Correlation",
    ),
    "number that compute_metrics adds": of(
        lambda k: own.with_attribute(stacked(layers.Dense(4), model=own.AddsNumber), "number", k),
        0.5,
        2.0,
        graph="AddsNumber",
    ),
    "own regularizer": of(
        lambda r: stacked(layers.Dense(4, kernel_regularizer=own.OwnRegularizer(r))),
        0.1,
        0.5,
        graph="OwnRegularizer",
    ),
    "own constraint": of(
        lambda r: stacked(layers.Dense(4, kernel_constraint=own.OwnConstraint(r))),
        0.1,
        0.3,
        graph="OwnConstraint",
    ),
    "own initializer": of(
        lambda k: stacked(layers.Dense(4, kernel_initializer=lambda s, dtype=None: k * tf.ones(s))),
        0.1,
        0.3,
        graph="lambda",
    ),
    "own schedule": of(
        lambda r: stacked(optimizer=optimizers.SGD(own.OwnSchedule(r))),
        0.1,
        0.3,
        graph="OwnSchedule",
    ),
    "own optimizer": of(
        lambda k: stacked(optimizer=own.with_attribute(own.OwnOptimizer(0.1), "push", k)),
        0.5,
        2.0,
        graph="OwnOptimizer",
    ),
    "callable learning rate": of(
        lambda r: stacked(optimizer=optimizers.SGD(lambda: r)), 0.1, 0.3, graph="lambda"
    ),
    "own loss on masked rows": of(
        lambda p: stacked(
            layers.Masking(),
            layers.GRU(3, return_sequences=True),
            layers.Dense(1),
            layers.GlobalAveragePooling1D(),
            data=SEQUENCES,
            loss=own.OwnLoss(p),
        ),
        1.0,
        2.0,
        graph="OwnLoss",
        data=SEQUENCES,
    ),
}
