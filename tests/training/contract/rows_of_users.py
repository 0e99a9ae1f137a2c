"""Rows with code of the user's, which is traced anew for each trial."""

import random

import keras
import tensorflow as tf
import users_layers
import users_losses
import users_models
import users_workloads
from contract_row import NUMBERS, ONE, SEQUENCES, Row, draw, layers, of, optimizers, stacked
from trials import ByTape
from users_losses import with_attribute

callbacks, ops = keras.callbacks, keras.ops


def layer(change, *values, graph="users_layers", **how):
    """Return a row with a layer that is made of each config."""
    return row(
        lambda value: stacked(layers.Dense(4), change(value), layers.Dense(3)),
        *values,
        graph=graph,
        **how,
    )


def row(build, *values, graph=ONE, **how):
    """Return a row of a builder, by default with two numbers that matter."""
    return of(build, *(values or (0.5, 2.0)), graph=graph, **how)


def workload(made, *values, graph="train_step", by_fit=True):
    """Return a row of a workload."""
    return Row(made, [{"value": value} for value in values or (0.5, 2.0)], graph, by_fit)


def loss(make, *values, graph, data=NUMBERS, **out):
    return row(
        lambda v: stacked(layers.Dense(4), data=data, loss=make(v), **out),
        *values,
        graph=graph,
        data=data,
    )


def step_of_workload(config):
    optimizer = optimizers.Adam(0.02, global_clipnorm=config["clip"])
    return stacked(layers.Dense(4, "relu"), optimizer=optimizer, metrics=["mae"])


CALLBACKS = {
    "ReduceLROnPlateau": lambda: callbacks.ReduceLROnPlateau(
        "loss", factor=0.5, patience=1, min_delta=1e6
    ),
    "LearningRateScheduler": lambda: callbacks.LearningRateScheduler(
        lambda epoch, rate: rate / (epoch + 2)
    ),
    "SwapEMAWeights": callbacks.SwapEMAWeights,
    "callback that remembers": users_workloads.Remembering,
}


def with_callback(name, make):
    """Return a row with a callback, which goes by what it remembers."""

    def build(momentum):
        optimizer = optimizers.SGD(0.1, momentum=momentum, use_ema="EMA" in name)
        return stacked(layers.Dense(4), optimizer=optimizer)

    return row(build, 0.5, 0.9, callbacks=lambda config: [make()])


ROWS = {
    **{name: with_callback(name, make) for name, make in CALLBACKS.items()},
    # What a callback or a workload holds of build_model
    "variable of a loss that a callback anneals": workload(
        users_workloads.Anneals(), graph="users_workloads"
    ),
    "optimizer and model that the workload keeps": workload(
        users_workloads.KeepsParts(), 0.5, 0.8, graph=ONE
    ),
    "build of a layer's instance": row(users_layers.patched_build, graph="build"),
    # State of the workload
    "layers that the workload keeps": workload(
        users_workloads.KeepsLayers(), 0, 1, graph="several"
    ),
    **{
        f"{kind} that the workload keeps": workload(
            users_workloads.KeepsState(kind), 0.5, 1.0, graph=ONE
        )
        for kind in ("cycle", "cache")
    },
    # They draw by the trial's seed, from a state inside of TensorFlow's kernels
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
    # Variables of the first call
    "variable that a loss makes": loss(users_losses.CountingLoss, 0.1, 1.0, graph="CountingLoss"),
    "variable of a loss that build_model makes": loss(
        lambda k: users_losses.CountingLoss(k, users_losses.count_from(1.0)),
        0.1,
        1.0,
        graph="CountingLoss",
    ),
    "variable that a metric makes": row(
        lambda k: stacked(metrics=[users_losses.CountingMetric(k)]), graph="CountingMetric"
    ),
    "variable that compute_loss makes": row(
        lambda k: with_attribute(
            stacked(layers.Dense(4), model=users_models.CountingModel), "step", k
        ),
        0.1,
        1.0,
        graph="CountingModel",
    ),
    "variable that train_step makes": workload(users_workloads.StepWithCount()),
    "callback that sets momentum": row(
        lambda m: stacked(layers.Dense(4)),
        0.5,
        0.9,
        callbacks=lambda config: [users_workloads.Sets("momentum", config["value"])],
    ),
    "callback that freezes a layer": row(
        lambda which: stacked(layers.Dense(4, "relu"), layers.Dense(4, "tanh")),
        0,
        1,
        graph="several",
        callbacks=lambda config: [users_workloads.Sets("trainable", False, config["value"])],
    ),
    "callback that draws": row(
        lambda rate: stacked(layers.Dropout(rate)),
        0.2,
        0.5,
        callbacks=lambda config: [users_workloads.DrawnRate()],
    ),
    "number that code in C reads": layer(
        lambda rate: users_layers.Reads(rate, users_layers.read_by_c), 0.3, 0.5
    ),
    # Steps of the user's
    "own train_step, uneven, clipped": row(
        lambda clip: stacked(
            layers.Dense(4, "relu"),
            model=users_models.OwnStep,
            optimizer=optimizers.SGD(0.1, global_clipnorm=clip),
        ),
        0.1,
        0.5,
        graph="OwnStep",
    ),
    "train_step of the workload": Row(
        ByTape(step_of_workload, NUMBERS), [{"clip": 0.1}, {"clip": 0.5}], "train_step"
    ),
    "train_step reads the workload": workload(users_workloads.StepOfWorkload()),
    "train_step returns a mean": workload(users_workloads.StepWithItsOwnLogs()),
    # By fit it draws from where the process' own generator stands.
    "train_step draws": workload(users_workloads.StepByChance(), 0.5, 1.0, by_fit=False),
    "two models without a call that train one another": row(
        users_models.adversaries, 3, 4, graph="Adversaries", data=draw(20, 0)
    ),
    "model without a call": row(users_models.walks, graph="Walks", data=draw(20, 0)),
    "test_step": row(
        lambda k: with_attribute(stacked(layers.Dense(4), model=users_models.OwnTest), "factor", k),
        graph="OwnTest",
    ),
    # Methods of instances
    "compute_loss of an instance": row(users_models.with_own_loss, graph="compute_loss"),
    "method of a class of Keras": row(
        users_layers.patched_call, graph=r"Scaled\.call of users_layers"
    ),
    "method of a class of Keras, decorated": row(
        users_layers.patched_by_a_decorator, graph=r"Scaled\.call of users_layers"
    ),
    "property of a class of Keras": row(
        users_layers.patched_property, graph=r"Scaled\.scale of users_layers"
    ),
    # Layers of the user's
    "closure": layer(lambda k: users_layers.Does(lambda x: k * x)),
    "Lambda layer": layer(lambda k: layers.Lambda(lambda x: k * x), graph="lambda"),
    "activation called like one of Keras'": row(
        lambda k: stacked(layers.Dense(4, activation=users_layers.scaling("leaky_relu", k))),
        graph="leaky_relu",
    ),
    "module global": layer(users_layers.set_global),
    "variable of TensorFlow": layer(
        lambda k: users_layers.Holds(tf.Variable(k, trainable=False)), 0.5, 2.0
    ),
    "number drawn while the model is built": layer(
        lambda k: users_layers.Holds(random.random()), 1, 2
    ),
    "generator of TensorFlow": layer(users_layers.Noisy, 1, 2),
    "default of a lookup table": layer(users_layers.Looked),
    "layer that adds a loss": layer(users_layers.AddsLoss),
    "layer that moves its own weight": layer(users_layers.Centers, 0.1, 0.5),
    "variable of TensorFlow moved in call": layer(users_layers.Counts, 1.0, 2.0),
    "layer with weights alone": layer(users_layers.Scales),
    "penalty by a function": row(
        lambda k: stacked(layers.Dense(4, activity_regularizer=lambda a: k * ops.max(a))),
        0.1,
        0.5,
        graph="lambda",
    ),
    "subclassed model": row(users_models.by_hand, graph="ByHand"),
    # Losses and metrics of the user's
    "own loss": loss(users_losses.OwnLoss, 1.0, 2.0, graph="OwnLoss"),
    "loss function of rows": loss(
        lambda k: lambda y, p: k * ops.mean(ops.square(y - p), -1), graph="lambda"
    ),
    "loss function of the batch": loss(
        lambda k: lambda y, p: k * ops.mean(ops.square(y - p)), graph="lambda"
    ),
    "metric with several results": row(
        lambda k: stacked(metrics=[with_attribute(users_losses.Errors(), "factor", k)]),
        graph="Errors",
    ),
    "metric of a whole batch": row(
        lambda width: stacked(layers.Dense(width), metrics=[users_losses.Correlation()]),
        3,
        4,
        graph="Correlation",
    ),
    "metric that is no sum": row(
        lambda k: stacked(metrics=[users_losses.Largest(k)]), graph="Largest"
    ),
    "loss of a tensor in the model": row(
        lambda k: stacked(layers.Dense(4), users_layers.Keeps(k), model=users_models.LossOfKept),
        graph="LossOfKept|Keeps",
    ),
    "number that compute_metrics adds": row(
        lambda k: with_attribute(
            stacked(layers.Dense(4), model=users_models.AddsNumber), "number", k
        ),
        graph="AddsNumber",
    ),
    "own regularizer": row(
        lambda r: stacked(layers.Dense(4, kernel_regularizer=users_losses.OwnRegularizer(r))),
        0.1,
        0.5,
        graph="OwnRegularizer",
    ),
    "own optimizer": row(
        lambda k: stacked(optimizer=with_attribute(users_losses.OwnOptimizer(0.1), "push", k)),
        graph="OwnOptimizer",
    ),
    "own loss on masked rows": row(
        lambda p: stacked(
            layers.Masking(),
            layers.GRU(3, return_sequences=True),
            layers.Dense(1),
            layers.GlobalAveragePooling1D(),
            data=SEQUENCES,
            loss=users_losses.OwnLoss(p),
        ),
        1.0,
        2.0,
        graph="OwnLoss",
        data=SEQUENCES,
    ),
}
