"""Models as users write them, for rows of the contract."""

import types

import keras
import tensorflow as tf
from contract_row import layers, optimizers, stacked
from users_layers import Keeps

metrics, ops = keras.metrics, keras.ops


class CountingModel(keras.Sequential):
    """A model whose ``compute_loss`` makes a variable at its first call."""

    step, count = 1.0, None

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        if self.count is None:
            self.count = tf.Variable(1.0, trainable=False)
        self.count.assign_add(self.step)
        return self.count * super().compute_loss(x, y, y_pred, sample_weight, training)


class AddsNumber(keras.Sequential):
    """A model whose ``compute_metrics`` adds a plain number."""

    number = 1.0

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        return {**super().compute_metrics(x, y, y_pred, sample_weight), "added": self.number}


class LossOfKept(keras.Sequential):
    """A model whose loss is of a tensor inside of it."""

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        kept = next(layer for layer in self.layers if isinstance(layer, Keeps)).kept
        return super().compute_loss(x, y, y_pred, sample_weight) + ops.mean(kept)


class OwnStep(keras.Sequential):
    """A model that trains itself."""

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = self.compute_loss(x, y, y_pred)
        variables = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        for metric in self.metrics:
            if metric.name != "loss":
                metric.update_state(y, y_pred)
        return self.get_metrics_result()


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


def with_own_loss(value):
    """Return a model of which one instance has another method."""

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return value * keras.Model.compute_loss(self, x, y, y_pred, sample_weight, training)

    model = stacked(layers.Dense(4, "relu"))
    model.compute_loss = types.MethodType(compute_loss, model)
    return model
