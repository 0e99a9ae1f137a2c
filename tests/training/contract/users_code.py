"""Layers, losses, models, callbacks and workloads as users write them, for rows of the contract."""

import functools
import itertools
import math
import random
import threading
import types

import keras
import numpy as np
import tensorflow as tf
from contract_row import CLASSES, NUMBERS, Data, draw, layers, optimizers, stacked
from trials import Given

losses, metrics, ops = keras.losses, keras.metrics, keras.ops
regularizers, constraints, schedules = keras.regularizers, keras.constraints, optimizers.schedules


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


class Named(layers.Layer):
    """A layer with an attribute that is called like one of Keras' own."""

    def __init__(self, name, value):
        super().__init__()
        self.attribute = name
        setattr(self, name, value)

    def call(self, x):
        return x * getattr(self, self.attribute)


class Reads(layers.Layer):
    """A layer that multiplies by what a function makes of the rate of a dropout."""

    def __init__(self, rate, read):
        super().__init__()
        self.dropout, self.read = layers.Dropout(rate), read

    def call(self, x, training=None):
        return self.dropout(x, training=training) * self.read(self.dropout.rate)


class OfClass(layers.Layer):
    """A layer that multiplies by an attribute of its class."""

    factor = 1.0

    def call(self, x):
        return x * self.factor


class Draws(layers.Layer):
    """A layer that multiplies by a number of its own generator, drawn while it is traced."""

    def __init__(self, generator):
        super().__init__()
        self.generator = generator

    def call(self, x):
        return x * self.generator.random()


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


LEVEL, KNOB = 1.0, {"value": 1.0}


def scaled_by_global(x):
    return LEVEL * x


def set_global(value):
    global LEVEL
    LEVEL = value
    return Does(scaled_by_global)


def set_item(value):
    KNOB["value"] = value
    return Does(lambda x: KNOB["value"] * x)


def set_class(value):
    OfClass.factor = value
    return OfClass()


def scaling(name, factor):
    """Return a function that scales, of a name."""

    def activation(x):
        return factor * x

    activation.__name__ = activation.__qualname__ = name
    return activation


class OwnLoss(losses.Loss):
    def __init__(self, power):
        super().__init__()
        self.power = power

    def call(self, y_true, y_pred):
        return ops.mean(ops.abs(y_true - y_pred) ** self.power, -1)


def count_from(number):
    """Return a variable that replicas may move."""
    once = tf.VariableAggregation.ONLY_FIRST_REPLICA
    return tf.Variable(number, False, aggregation=once, name="count/replica_9")


class CountingLoss(losses.Loss):
    """A loss that grows with its calls, which it counts from the first one on."""

    def __init__(self, step, count=None):
        super().__init__()
        self.step, self.count = step, count

    def call(self, y_true, y_pred):
        if self.count is None:
            self.count = tf.Variable(1.0, trainable=False)
        self.count.assign_add(self.step)
        return self.count * ops.mean(ops.square(y_true - y_pred), -1)


class CountingRegularizer(regularizers.Regularizer):
    """The same as a penalty."""

    def __init__(self, step, count=None):
        self.step, self.count = step, count

    def __call__(self, x):
        if self.count is None:
            self.count = tf.Variable(0.1, trainable=False)
        self.count.assign_add(self.step)
        return self.count * ops.sum(ops.square(x))


class CountingMetric(metrics.Metric):
    """A metric that makes its variable at the first update, as ``build`` of a metric."""

    def __init__(self, step):
        super().__init__(name="counting")
        self.step, self.count = step, None

    def update_state(self, y_true, y_pred, sample_weight=None):
        if self.count is None:
            self.count = self.add_variable((), "zeros", name="count")
        self.count.assign_add(self.step * ops.sum(ops.abs(y_true - y_pred)))

    def result(self):
        return 0.0 if self.count is None else self.count + 0.0


class CountingModel(keras.Sequential):
    """A model whose ``compute_loss`` makes a variable at its first call."""

    step, count = 1.0, None

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        if self.count is None:
            self.count = tf.Variable(1.0, trainable=False)
        self.count.assign_add(self.step)
        return self.count * super().compute_loss(x, y, y_pred, sample_weight, training)


class OwnMetric(metrics.MeanAbsoluteError):
    factor = 1.0

    def result(self):
        return self.factor * super().result()


class Errors(metrics.MeanAbsoluteError):
    """A metric with two results."""

    factor = 1.0

    def result(self):
        return {"error": super().result(), "more": self.factor * super().result()}


class Correlation(metrics.Metric):
    """A metric of a whole batch: the mean of the correlations of batches."""

    def __init__(self):
        super().__init__(name="correlation")
        self.sum = self.add_variable((), "zeros", name="sum")
        self.count = self.add_variable((), "zeros", name="count")

    def update_state(self, y_true, y_pred, sample_weight=None):
        y, p = y_true - ops.mean(y_true), y_pred - ops.mean(y_pred)
        size = ops.sqrt(ops.sum(y * y) * ops.sum(p * p)) + 1e-7
        self.sum.assign_add(ops.sum(y * p) / size)
        self.count.assign_add(1.0)

    def result(self):
        return self.sum / (self.count + 1e-7)


class AddsNumber(keras.Sequential):
    """A model whose ``compute_metrics`` adds a plain number."""

    number = 1.0

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        return {**super().compute_metrics(x, y, y_pred, sample_weight), "added": self.number}


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
    """A subclassed model with a number in its ``call``, dropout, and weights of its first call."""

    def __init__(self, factor):
        super().__init__()
        self.factor = factor
        self.hidden, self.out = layers.Dense(4, "relu"), layers.Dense(1)
        self.dropout = layers.Dropout(0.3)

    def call(self, x, training=None):
        return self.out(self.dropout(self.factor * self.hidden(x), training=training))


def by_hand(factor):
    model = ByHand(factor)
    model.compile(optimizers.SGD(0.1), "mse")
    return model


class Adversaries(keras.Model):
    """Two models with an optimizer each that train one another; there is no ``call``."""

    def __init__(self, width):
        super().__init__()
        self.generator = keras.Sequential([layers.Dense(width, "relu"), layers.Dense(6)])
        self.critic = keras.Sequential([layers.Dense(4, "relu"), layers.Dense(1)])
        self.critic_optimizer = optimizers.Adam(0.05)
        self.tracker = metrics.Mean(name="loss")
        self.noise = keras.random.SeedGenerator(3)

    @property
    def metrics(self):
        return [self.tracker]

    def train_step(self, data):
        real, _ = data
        with tf.GradientTape() as tape:
            made = self.generator(keras.random.normal((tf.shape(real)[0], 3), seed=self.noise))
            loss = ops.mean(self.critic(made)) - ops.mean(self.critic(real))
        weights = self.critic.trainable_variables
        self.critic_optimizer.apply(tape.gradient(loss, weights), weights)
        with tf.GradientTape() as tape:
            made = self.generator(keras.random.normal((tf.shape(real)[0], 3), seed=self.noise))
            loss = -ops.mean(self.critic(made))
        weights = self.generator.trainable_variables
        self.optimizer.apply(tape.gradient(loss, weights), weights)
        self.tracker.update_state(loss)
        return {"loss": self.tracker.result()}


def adversaries(width):
    model = Adversaries(width)
    model.compile(optimizers.Adam(0.01))
    return model


class Walks(keras.Model):
    """A model without a ``call`` whose loss is of its weight alone."""

    def __init__(self, step):
        super().__init__()
        self.step, self.place = step, self.add_weight(shape=(), initializer="ones", name="place")

    def train_step(self, data):
        with tf.GradientTape() as tape:
            loss = self.step * ops.square(self.place)
        self.optimizer.apply(tape.gradient(loss, [self.place.value]), [self.place])
        return {"loss": loss}


def walks(step):
    model = Walks(step)
    model.compile(optimizers.SGD(0.1))
    return model


class OwnTest(keras.Sequential):
    """A model with a validation of its own."""

    factor = 1.0

    def test_step(self, data):
        x, y = data
        loss = self.factor * self.compute_loss(x, y, self(x, training=False), training=False)
        self.metrics[0].update_state(loss)
        return {"loss": self.metrics[0].result()}


class StepOfModel(Given):
    """Weighs the loss by an attribute of the model, which ``build_model`` sets."""

    def __init__(self):
        super().__init__(None, NUMBERS)

    def build_model(self, config):
        return with_attribute(stacked(layers.Dense(4, "relu")), "push", config["value"])

    def weight(self, model):
        return model.push

    def train_step(self, model, batch):
        x, y = batch
        with tf.GradientTape() as tape:
            loss = self.weight(model) * model.compute_loss(x, y, model(x, training=True))
        variables = model.trainable_variables
        model.optimizer.apply(tape.gradient(loss, variables), variables)
        for metric in model.metrics:
            metric.update_state(*([loss] if metric.name == "loss" else [y, y]))
        return model.get_metrics_result()


class StepOfWorkload(StepOfModel):
    """The same with an attribute of the workload."""

    def build_model(self, config):
        self.push = config["value"]
        return stacked(layers.Dense(4, "relu"))

    def weight(self, model):
        return self.push


class StepOfThread(StepOfWorkload):
    """The same with what a thread has of its own."""

    def build_model(self, config):
        LOCAL.push = config["value"]
        return super().build_model(config)

    def weight(self, model):
        return LOCAL.push


LOCAL = threading.local()


class StepWithCount(StepOfWorkload):
    """Makes a variable at the first call."""

    count = None

    def weight(self, model):
        if self.count is None:
            self.count = tf.Variable(0.0, trainable=False)
        return self.push * self.count.assign_add(1.0)


class StepByChance(StepOfWorkload):
    """The same with a weight of Keras' own generator."""

    def weight(self, model):
        return self.push * keras.random.uniform(())


class Anneals(Given):
    """A loss reads a variable that a callback moves; both are made in ``build_model``."""

    def __init__(self):
        super().__init__(None, NUMBERS)

    def build_model(self, config):
        self.level = level = tf.Variable(1.0, trainable=False)
        return stacked(layers.Dense(4), loss=lambda y, p: level * ops.mean(ops.square(y - p), -1))

    def callbacks(self, config):
        def anneal(epoch, logs):
            self.level.assign(self.level * config["value"])

        return [keras.callbacks.LambdaCallback(on_epoch_end=anneal)]


class KeepsParts(Given):
    """Model and optimizer are kept for a callback, which halves or doubles their numbers."""

    def __init__(self):
        super().__init__(None, NUMBERS)

    def build_model(self, config):
        self.optimizer = optimizers.SGD(0.05, momentum=0.9)
        self.model = stacked(layers.Dense(4), optimizer=self.optimizer)
        return self.model

    def callbacks(self, config):
        def scale(epoch, logs):
            self.optimizer.learning_rate.assign(self.optimizer.learning_rate * config["value"])
            self.model.layers[0].kernel.assign(self.model.layers[0].kernel * config["value"])

        return [keras.callbacks.LambdaCallback(on_epoch_end=scale)]


class KeepsState(Given):
    """What ``build_model`` reads is kept by the workload, and each call moves it on."""

    def __init__(self, kind):
        super().__init__(None, NUMBERS)
        self.kind, self.numbers = kind, np.ones(3)
        self.generator, self.python = np.random.default_rng(0), random.Random(0)
        self.cycle = itertools.cycle([1.0, 2.0, 3.0])

    @functools.lru_cache  # noqa: B019  as users write it
    def cached(self, rate):
        return random.random() + rate

    def number(self, rate):
        if self.kind == "array":
            self.numbers += rate
        made = {
            "generator": lambda: self.generator.random(),
            "random": lambda: self.python.random(),
            "cycle": lambda: next(self.cycle),
            "array": lambda: self.numbers[0],
            "cache": lambda: self.cached(rate),
        }
        return float(made[self.kind]())

    def build_model(self, config):
        return stacked(
            layers.Dense(4),
            optimizer=optimizers.SGD(0.1 * config["value"] * self.number(config["value"])),
        )


class KeepsLayers(Given):
    """Layers that the workload keeps, of which a config says which are trained."""

    def __init__(self):
        super().__init__(None, NUMBERS)
        self.hidden = None

    def build_model(self, config):
        if self.hidden is None:
            self.hidden = [layers.Dense(4, "relu"), layers.Dense(4, "tanh")]
        for number, layer in enumerate(self.hidden):
            layer.trainable = number != config["value"]
        return stacked(*self.hidden)


class OfRows(Given):
    """A workload whose class weights or sample weights are in the config."""

    def __init__(self):
        super().__init__(None, CLASSES)

    def load_data(self, config):
        if "weights" in config:
            x, y = CLASSES.train
            return Data(train=(x, y, np.linspace(*config["weights"], len(y)).astype("float32")))
        return draw(kind="class", class_weight=config["class_weight"])

    def build_model(self, config):
        return stacked(
            layers.Dense(4, "relu"),
            data=CLASSES,
            out=layers.Dense(3, "softmax"),
            loss="sparse_categorical_crossentropy",
            metrics=["accuracy"],
            weighted_metrics=["accuracy"],
        )


class Sets(keras.callbacks.Callback):
    """Sets an attribute of the optimizer or of a layer when training begins."""

    def __init__(self, name, value, layer=None):
        super().__init__()
        self.name, self.value, self.layer = name, value, layer

    def on_train_begin(self, logs=None):
        owner = self.model.optimizer if self.layer is None else self.model.layers[self.layer]
        setattr(owner, self.name, self.value)


class DrawnRate(keras.callbacks.Callback):
    """Draws a learning rate by NumPy's and Python's global generators."""

    def on_epoch_end(self, epoch, logs=None):
        drawn = np.random.uniform() + random.random()  # noqa: NPY002
        self.model.optimizer.learning_rate.assign(0.01 * (1 + drawn))


def patched(name, make):
    """Return a builder of a model of which one instance has another method."""

    def build(value):
        model = stacked(layers.Dense(4, "relu"))
        setattr(model, name, types.MethodType(make(value), model))
        return model

    return build


def weighed_loss(value):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return value * keras.Model.compute_loss(self, x, y, y_pred, sample_weight, training)

    return compute_loss


def weighed_step(value):
    def step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = value * self.compute_loss(x, y, self(x, training=True))
        variables = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        self.metrics[0].update_state(loss)
        return self.get_metrics_result()

    return step


def weighed_call(value):
    def call(self, x, training=None, mask=None):
        return value * keras.Sequential.call(self, x, training=training, mask=mask)

    return call


def patched_layer(value):
    model = stacked(layers.Dense(4, "relu"))
    model.layers[0].call = lambda x, **_: value * x @ model.layers[0].kernel
    return model


def patched_build(value):
    layer = layers.Dense(4)

    def build(self, shape):
        type(self).build(self, shape)
        self.kernel.assign(value * self.kernel)

    layer.build = types.MethodType(build, layer)
    return stacked(layer)


READ_BY_C = {
    "isclose": lambda rate: 2.0 if math.isclose(rate, 0.3) else 1.0,
    "sqrt": lambda rate: math.sqrt(rate),
    "text": lambda rate: 2.0 if "%.1f" % rate == "0.3" else 1.0,  # noqa: UP031
}
