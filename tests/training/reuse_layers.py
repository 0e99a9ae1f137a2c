"""Layers and other parts of models that depend on something that their config does not tell."""

import math
import random

import keras
import numpy as np
import tensorflow as tf

layers, losses, metrics, optimizers = keras.layers, keras.losses, keras.metrics, keras.optimizers
regularizers, constraints, ops = keras.regularizers, keras.constraints, keras.ops
schedules = optimizers.schedules


def scaling(name, factor):
    def activation(x):
        return factor * x

    activation.__name__ = activation.__qualname__ = name
    return activation


class DrawnRate(keras.callbacks.Callback):
    """Draws a learning rate by NumPy's and Python's global generators."""

    def on_epoch_end(self, epoch, logs=None):
        drawn = np.random.uniform() + random.random()  # noqa: NPY002
        self.model.optimizer.learning_rate.assign(0.01 * (1 + drawn))


class Freeze(keras.callbacks.Callback):
    """Freezes a layer when training begins."""

    def __init__(self, which):
        super().__init__()
        self.which = which

    def on_train_begin(self, logs=None):
        for number, layer in enumerate(self.model.layers):
            layer.trainable = number != self.which


class Patch(keras.callbacks.Callback):
    """Sets a rate of a layer when training begins."""

    def __init__(self, rate):
        super().__init__()
        self.rate = rate

    def on_train_begin(self, logs=None):
        self.model.layers[1].negative_slope = self.rate


class Unwritable(keras.Model):
    """A model that Keras cannot serialize."""

    def __init__(self, made=None, activation="relu", outputs=1):
        super().__init__()
        self.made = made
        self.hidden = layers.Dense(4, activation=activation)
        self.outs = [layers.Dense(1, name=f"out{i}") for i in range(outputs)]

    def call(self, x):
        outs = [out(self.hidden(x)) for out in self.outs]
        return outs[0] if len(outs) == 1 else tuple(outs)

    def get_config(self):
        raise NotImplementedError


KNOB = {"value": 1.0}
LEVEL = 1.0


def scaled_by_global(x):
    return LEVEL * x


def set_global(value):
    global LEVEL
    LEVEL = value
    return Does(scaled_by_global)


def set_item(value):
    KNOB["value"] = value
    return Does(lambda x: KNOB["value"] * x)


class Does(layers.Layer):
    """A layer that does what it is given."""

    def __init__(self, act):
        super().__init__()
        self.act = act

    def call(self, x):
        return self.act(x)


class Holds(layers.Layer):
    """A layer that multiplies by what it holds."""

    def __init__(self, held):
        super().__init__()
        self.held = held

    def call(self, x):
        return x * self.held


class OfClass(layers.Layer):
    """A layer that multiplies by an attribute of its class."""

    factor = 1.0

    def call(self, x):
        return x * self.factor


def set_class(value):
    OfClass.factor = value
    return OfClass()


class Draws(layers.Layer):
    """A layer that multiplies by a number of its own generator, drawn while it is traced."""

    def __init__(self, generator):
        super().__init__()
        self.generator = generator

    def call(self, x):
        return x * self.generator.random()


class Missing(layers.Layer):
    """A layer that multiplies by what a mapping gives for a key that it lacks."""

    def __init__(self, table):
        super().__init__()
        self.look_up = lambda: table["missing"]

    def call(self, x):
        return x * self.look_up()


class Masked(layers.Layer):
    """A layer that multiplies by an array of which some parts are masked."""

    def __init__(self, array):
        super().__init__()
        self.array = array

    def call(self, x):
        return x * self.array.filled(0)


def table(default):
    made = tf.lookup.KeyValueTensorInitializer(tf.constant([1]), tf.constant([3.0]))
    return tf.lookup.StaticHashTable(made, default)


class Looked(layers.Layer):
    """A layer that multiplies by what a table has for a key that it lacks."""

    def __init__(self, table):
        super().__init__()
        self.table = table

    def call(self, x):
        return x * self.table.lookup(tf.constant(7))


class Noisy(layers.Layer):
    """A layer that adds what a generator draws."""

    def __init__(self, generator):
        super().__init__()
        self.generator = generator

    def call(self, x):
        return x + self.generator.normal((4,))


class AsText(layers.Layer):
    """A layer that reads the rate of a dropout as text."""

    def __init__(self, dropout):
        super().__init__()
        self.dropout = dropout

    def call(self, x):
        return self.dropout(x) * (2.0 if f"{self.dropout.rate:.1f}" == "0.3" else 1.0)


class AsTextByC(AsText):
    """A layer that reads the rate of a dropout as text by code that is not Python's own."""

    def call(self, x):
        return self.dropout(x) * (2.0 if "%.1f" % self.dropout.rate == "0.3" else 1.0)  # noqa: UP031


class IsClose(AsText):
    """A layer that compares the rate of a dropout by code that is not Python's own."""

    def call(self, x):
        return self.dropout(x) * (2.0 if math.isclose(self.dropout.rate, 0.3) else 1.0)


class Slots:
    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value


class OwnLoss(losses.Loss):
    def __init__(self, power):
        super().__init__()
        self.power = power

    def call(self, y_true, y_pred):
        return ops.mean(ops.abs(y_true - y_pred) ** self.power, -1)


class OwnMetric(metrics.MeanAbsoluteError):
    factor = 1.0

    def result(self):
        return self.factor * super().result()


class OwnRegularizer(regularizers.Regularizer):
    def __init__(self, rate):
        self.rate = rate

    def __call__(self, x):
        return self.rate * ops.sum(ops.abs(x))


class OwnConstraint(constraints.Constraint):
    def __init__(self, limit):
        self.limit = limit

    def __call__(self, w):
        return ops.clip(w, -self.limit, self.limit)


class OwnSchedule(schedules.LearningRateSchedule):
    def __init__(self, rate):
        self.rate = rate

    def __call__(self, step):
        return self.rate / (1.0 + ops.cast(step, "float32"))


class OwnOptimizer(optimizers.SGD):
    push = 1.0

    def update_step(self, gradient, variable, learning_rate):
        super().update_step(gradient * self.push, variable, learning_rate)


def with_attribute(made, name, value):
    setattr(made, name, value)
    return made


class ByHand(keras.Model):
    """A subclassed model with a number in its ``call``."""

    def __init__(self, factor):
        super().__init__()
        self.factor = factor
        self.hidden, self.out = layers.Dense(4, "relu"), layers.Dense(1)

    def call(self, x):
        return self.out(self.factor * self.hidden(x))


def scaled_error(factor):
    def error(y, p):
        return factor * ops.mean(ops.abs(y - p), -1)

    return error


class Later(keras.Model):
    """A model whose weights wait for the first call, with dropout."""

    def __init__(self, rate):
        super().__init__()
        self.parts = [layers.Dense(4, "relu"), layers.Dropout(rate), layers.Dense(1)]

    def call(self, x, training=None):
        for part in self.parts:
            x = part(x, training=training) if isinstance(part, layers.Dropout) else part(x)
        return x
