"""Losses, metrics, penalties and optimizers as users write them, for rows of the contract."""

import keras
import tensorflow as tf
from contract_row import optimizers

losses, metrics, ops = keras.losses, keras.metrics, keras.ops
regularizers = keras.regularizers


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


class Largest(metrics.Metric):
    """A metric whose state is no sum, and does not begin at zero."""

    def __init__(self, factor):
        super().__init__(name="largest")
        self.factor = factor
        self.value = self.add_variable((), lambda shape, dtype: ops.full(shape, -1e9, dtype))

    def update_state(self, y_true, y_pred, sample_weight=None):
        largest = self.factor * ops.max(ops.abs(y_true - y_pred))
        self.value.assign(ops.maximum(self.value, largest))

    def result(self):
        return self.value + 0.0

    def reset_state(self):
        self.value.assign(-1e9)


class OwnRegularizer(regularizers.Regularizer):
    def __init__(self, rate):
        self.rate = rate

    def __call__(self, x):
        return self.rate * ops.sum(ops.abs(x))


class OwnOptimizer(optimizers.SGD):
    push = 1.0

    def update_step(self, gradient, variable, learning_rate):
        super().update_step(gradient * self.push, variable, learning_rate)


def with_attribute(made, name, value):
    setattr(made, name, value)
    return made
