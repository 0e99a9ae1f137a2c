"""Layers and their functions as users write them, for rows of the contract."""

import functools
import math
import types

import keras
import tensorflow as tf
from contract_row import layers, stacked

ops = keras.ops


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


class Reads(layers.Layer):
    """A layer that multiplies by what a function makes of the rate of a dropout."""

    def __init__(self, rate, read):
        super().__init__()
        self.dropout, self.read = layers.Dropout(rate), read

    def call(self, x, training=None):
        return self.dropout(x, training=training) * self.read(self.dropout.rate)


class Noisy(layers.Layer):
    """A layer that adds what a generator of TensorFlow's draws."""

    def __init__(self, seed):
        super().__init__()
        self.generator = tf.random.Generator.from_seed(seed)

    def call(self, x):
        return x + self.generator.normal((4,))


class Looked(layers.Layer):
    """A layer that multiplies by what a table has for a key that it lacks."""

    def __init__(self, default):
        super().__init__()
        pairs = tf.lookup.KeyValueTensorInitializer(tf.constant([1]), tf.constant([3.0]))
        self.table = tf.lookup.StaticHashTable(pairs, default)

    def call(self, x):
        return x * self.table.lookup(tf.constant(7))


class Centers(layers.Layer):
    """A layer that moves its own weight to the mean of what it sees."""

    def __init__(self, rate):
        super().__init__()
        self.rate = rate

    def build(self, shape):
        self.center = self.add_weight(shape=(shape[-1],), initializer="zeros", trainable=False)

    def call(self, x, training=None):
        if training:
            self.center.assign_add(self.rate * (ops.mean(x, 0) - self.center))
        return x - self.center


class AddsLoss(layers.Layer):
    """A layer that adds a loss, as a variational autoencoder does."""

    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def call(self, x):
        self.add_loss(self.factor * ops.mean(ops.square(x)))
        return x


class Counts(layers.Layer):
    """A layer that counts its calls in a variable of TensorFlow."""

    def __init__(self, step):
        super().__init__()
        self.step, self.seen = step, tf.Variable(0.0, trainable=False)

    def call(self, x):
        self.seen.assign_add(self.step)
        return x


class Scales(layers.Layer):
    """A layer with nothing but weights, one of them frozen."""

    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def build(self, shape):
        self.table = self.add_weight(shape=shape[1:], trainable=False, initializer="ones")
        self.scale = self.add_weight(shape=shape[1:], initializer="ones")

    def call(self, x):
        return x * self.scale * self.table * self.factor


class Keeps(layers.Layer):
    """A layer that keeps what it computed."""

    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def call(self, x):
        self.kept = x * self.factor
        return x


LEVEL = 1.0


def scaled_by_global(x):
    return LEVEL * x


def set_global(value):
    global LEVEL
    LEVEL = value
    return Does(scaled_by_global)


def scaling(name, factor):
    """Return a function that scales, of a name."""

    def activation(x):
        return factor * x

    activation.__name__ = activation.__qualname__ = name
    return activation


def patched_build(value):
    layer = layers.Dense(4)

    def build(self, shape):
        type(self).build(self, shape)
        self.kernel.assign(value * self.kernel)

    layer.build = types.MethodType(build, layer)
    return stacked(layer)


def patched_call(value):
    """Return a model with a layer of a class of Keras' that got a method from elsewhere."""
    return _patched(layers.Layer, call=lambda self, inputs: value * inputs)()


def patched_by_a_decorator(value):
    """Return such a model, whose method says that it is Keras'."""

    @functools.wraps(layers.Layer.call)
    def call(self, inputs):
        return value * inputs

    return _patched(layers.Layer, call=call)()


def patched_property(value):
    """Return such a model with a property."""
    scale = property(lambda self: value, lambda self, given: None)
    return _patched(layers.Rescaling, scale=scale)(1.0)


def _patched(base, **attributes):
    kind = type("Scaled", (base,), {"__module__": "keras.layers"} | attributes)
    return lambda *given: stacked(kind(*given))


def read_by_c(rate):
    """Return what depends on a number that code in C reads."""
    return math.sqrt(rate) * (2.0 if math.isclose(rate, 0.3) else 1.0)
