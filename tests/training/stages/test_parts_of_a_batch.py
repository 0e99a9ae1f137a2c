"""Replicas, pieces and stages of a batch give the numbers of one device, or are refused by name.

Here are losses, metrics and models that are no sums over rows, and those that depend on the rows of
a part; ``test_exactness.py`` has optimizers and data.
"""

import functools
from typing import NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf
from guards import guarded
from trials import Given, draw, furthest, run, run_fresh, run_keras_fit

from tune_tf.errors import WorkloadError
from tune_tf.training.replicas.row_means import ROW_LOSSES, ROW_METRICS
from tune_tf.workload import Data

pytestmark = pytest.mark.tf
layers, losses, metrics, ops = keras.layers, keras.losses, keras.metrics, keras.ops

UNEVEN = 21
"""Rows in batches of 8: the last batch has 5, which neither 2 nor 3 replicas divide."""
LAYOUTS = {
    "2 replicas": (2, 1, 1),
    "3 replicas": (3, 1, 1),
    "2 pieces": (1, 1, 2),
    "2 replicas of 2 pieces": (2, 1, 2),
    "2 stages, 2 pieces": (1, 2, 2),
    "2 replicas of 2 stages": (2, 2, 1),
}


class Case(NamedTuple):
    """A workload, and what a refusal of parts of a batch names.

    Args:
        workload: What is trained.
        refused: What the error must name; None: the numbers are those of one device.
        pieces: The same for pieces alone.
    """

    workload: Given
    refused: str | None = None
    pieces: str | None = None


def square_error(y_true, y_pred):
    return tf.reduce_mean(tf.square(y_true - y_pred))


class RootOfMean(losses.Loss):
    """A loss of the whole batch that is no mean."""

    def call(self, y_true, y_pred):
        return ops.sqrt(ops.mean(ops.square(y_true - y_pred)))


class Moving(losses.Loss):
    """A loss that remembers the batches before."""

    def __init__(self):
        super().__init__()
        self.scale = tf.Variable(1.0, trainable=False, aggregation=tf.VariableAggregation.MEAN)

    def call(self, y_true, y_pred):
        error = ops.mean(ops.square(y_true - y_pred))
        self.scale.assign(0.5 * self.scale + 0.5 * tf.stop_gradient(error))
        return error / self.scale


def correlation(y_true, y_pred):
    x, y = y_true - ops.mean(y_true), y_pred - ops.mean(y_pred)
    return ops.mean(x * y) / (ops.std(x) * ops.std(y) + 1e-6)


class Largest(metrics.Metric):
    """A metric whose state is no sum, and does not begin at zero."""

    def __init__(self, name="largest"):
        super().__init__(name=name)
        self.value = self.add_variable((), lambda shape, dtype: ops.full(shape, -1e9, dtype))

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.value.assign(ops.maximum(self.value, ops.max(ops.abs(y_true - y_pred))))

    def result(self):
        return self.value.value

    def reset_state(self):
        self.value.assign(-1e9)


class OwnLoss(keras.Model):
    """A model that computes its loss by itself."""

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        pull = ops.mean(ops.square(ops.mean(y_pred, 0) - ops.mean(x, 0)[:1]))
        weights = sum(ops.mean(v) for v in self.trainable_variables)
        return super().compute_loss(x, y, y_pred, sample_weight) + pull + 0.01 * weights


class OwnMetrics(keras.Model):
    """A model that logs more than its metrics."""

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        logs = super().compute_metrics(x, y, y_pred, sample_weight)
        return logs | {"spread": ops.max(y_pred) - ops.min(y_pred), "seven": 7.0}


class Keeps(layers.Layer):
    """A layer that keeps what it computed."""

    def call(self, x):
        self.kept = x * 2.0
        return x


class LossOfKept(keras.Model):
    """A model whose loss is of a tensor inside of it."""

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        kept = next(layer for layer in self.layers if isinstance(layer, Keeps)).kept
        return super().compute_loss(x, y, y_pred, sample_weight) + ops.mean(kept)


class Centers(layers.Layer):
    """A layer that moves a variable of its own by the rows."""

    def build(self, shape):
        self.center = self.add_weight(shape=shape[1:], trainable=False, name="center")

    def call(self, x, training=None):
        if training:
            self.center.assign(0.9 * self.center + 0.1 * ops.mean(x, 0))
        return x - self.center


class Counts(layers.Layer):
    """A layer with a variable of TensorFlow."""

    def __init__(self):
        super().__init__()
        self.seen = tf.Variable(0.0, trainable=False)

    def call(self, x):
        self.seen.assign_add(1.0)
        return x


class AddsLoss(layers.Layer):
    """A layer that adds a loss."""

    def call(self, x):
        self.add_loss(ops.mean(ops.square(x)))
        return x


class Noise(layers.Layer):
    """A layer whose noise is TensorFlow's."""

    def call(self, x, training=None):
        return x + 1e-3 * tf.random.normal(tf.shape(x)) if training else x


class Scaled(layers.Layer):
    """A layer of one's own with nothing but weights, one of them frozen."""

    def build(self, shape):
        self.table = self.add_weight(shape=shape[1:], trainable=False, initializer="ones")
        self.scale = self.add_weight(shape=shape[1:], initializer="ones")

    def call(self, x):
        return x * self.scale * self.table


def regression(*hidden, loss="mse", model=keras.Model, kernel=None, optimizer=None, **compiled):
    """Return a builder of a regression model; arguments that hold state are factories."""

    def build(config):
        x = keras.Input((6,))
        h = layers.Dense(8, activation="tanh", kernel_regularizer=kernel)(x)
        for make in hidden:
            h = make()(h)
        made = model(x, layers.Dense(1, activation="sigmoid")(h))
        of_loss = loss() if isinstance(loss, type) else loss
        made.compile(
            optimizer() if optimizer else keras.optimizers.SGD(0.1, momentum=0.9),
            of_loss,
            **{name: [each() for each in value] for name, value in compiled.items()},
        )
        return made

    return build


def sequence(units=4, loss="sparse_categorical_crossentropy", **compiled):
    """Return a builder of a labeller of masked sequences."""

    def build(config):
        words = keras.Input((5,), dtype="int32")
        h = layers.Embedding(12, units, mask_zero=True)(words)
        h = layers.LSTM(units, return_sequences=True)(h)
        model = keras.Model(words, layers.Dense(3, activation="softmax")(h))
        model.compile(keras.optimizers.SGD(0.1), loss, **compiled)
        return model

    return build


def two_outputs(config):
    """Build a model with losses of both kinds."""
    x = keras.Input((6,))
    h = layers.Dense(8, activation="tanh", activity_regularizer="l2")(x)
    a = layers.Dense(1, activation="sigmoid", name="a")(h)
    b = layers.Dense(1, activation="sigmoid", name="b")(h)
    model = keras.Model(x, [a, b])
    model.compile("sgd", [losses.Dice(), "mse"], loss_weights=[0.3, 0.7], metrics=[["mae"], []])
    return model


def flat(config):
    """Build a model whose output is a number a row, without an axis of its own."""
    x = keras.Input((6,))
    model = keras.Model(x, layers.Reshape(())(layers.Dense(1)(layers.Dense(4)(x))))
    model.compile("sgd", "mse", metrics=["mae"])
    return model


def numbers(num_rows=UNEVEN, **data):
    """Return rows with a target between 0 and 1."""
    drawn = draw(num_rows, 11, **data)

    def soften(x, y, *weights):
        return (x, (y[:, None] / 2).astype("float32"), *weights)

    return Data(
        train=soften(*drawn.train),
        validation=soften(*drawn.validation),
        class_weight=drawn.class_weight,
    )


def words(num_rows=UNEVEN, weighted=False):
    """Return sequences of uneven length with a label a step."""
    rng = np.random.default_rng(0)
    x = rng.integers(1, 12, (num_rows + 11, 5)).astype("int32")
    x[np.arange(5)[None] >= rng.integers(1, 6, (num_rows + 11, 1))] = 0
    rows = (x, x % 3) + ((rng.uniform(0.1, 2, x.shape).astype("float32"),) * weighted)
    return Data(
        train=tuple(a[:num_rows] for a in rows), validation=tuple(a[num_rows:] for a in rows)
    )


def doubled():
    """Return rows with two targets."""
    data = numbers()
    parts = [(x, [y, 1 - y]) for x, y in (data.train, data.validation)]
    return Data(train=parts[0], validation=parts[1])


def labels():
    """Return rows with labels, to weigh by class."""
    return draw(UNEVEN, 11, class_weight={0: 0.2, 1: 3.0})


def classifier(loss):
    """Return a builder of a classifier."""

    def build(config):
        inner = [layers.Dense(8, activation="tanh"), layers.Dense(3, activation="softmax")]
        model = keras.Sequential([keras.Input((6,)), *inner])
        model.compile("sgd", loss, metrics=["accuracy"])
        return model

    return build


def given(build, data=None):
    """Return a workload of batches of 8 rows."""
    return Given(build, data or numbers())


sgd, adam = keras.optimizers.SGD, keras.optimizers.Adam
CASES = {
    "mean by a function": Case(given(regression(loss=square_error, metrics=[lambda: "mae"]))),
    "mean by a Lambda, one row over": Case(
        given(regression(loss=lambda a, b: ops.mean(ops.abs(a - b))), numbers(17))
    ),
    "no mean, by a class": Case(given(regression(loss=RootOfMean))),
    "Dice": Case(given(regression(loss=losses.Dice))),
    "Tversky, clipped": Case(
        given(regression(loss=losses.Tversky, optimizer=lambda: sgd(0.5, global_clipnorm=0.05)))
    ),
    "Hinge": Case(given(regression(loss="hinge", metrics=[lambda: "hinge"]))),
    "CosineSimilarity over the rows": Case(
        given(regression(loss=lambda a, b: losses.cosine_similarity(a, b, axis=0)))
    ),
    "ignored class": Case(
        given(classifier(losses.SparseCategoricalCrossentropy(ignore_class=0)), draw(UNEVEN, 11))
    ),
    "sum": Case(given(regression(loss=losses.MeanSquaredError(reduction="sum"), kernel="l2"))),
    "mean by sample weight": Case(
        given(
            regression(loss=losses.MeanSquaredError(reduction="mean_with_sample_weight")),
            numbers(weights=True),
        )
    ),
    "function with sample weights": Case(
        given(
            regression(
                loss=lambda a, b: tf.square(a - b),
                weighted_metrics=[lambda: "mae"],
                metrics=[lambda: "mae"],
            ),
            numbers(weights=True),
        )
    ),
    "Dice of classes with weights": Case(
        given(classifier(lambda a, b: losses.sparse_categorical_crossentropy(a, b)), labels())
    ),
    "masked steps": Case(given(sequence(metrics=["accuracy"]), words())),
    "masked steps with weights": Case(
        given(sequence(weighted_metrics=["accuracy"]), words(weighted=True))
    ),
    "output without an axis of its own": Case(
        given(flat, Data(*[(x, y[:, 0]) for x, y in (numbers().train, numbers().validation)]))
    ),
    "two outputs, one with Dice": Case(given(two_outputs, doubled())),
    "loss that remembers": Case(given(regression(loss=Moving))),
    "correlation": Case(given(regression(metrics=[lambda: correlation]))),
    "PearsonCorrelation over the rows": Case(
        given(regression(metrics=[lambda: metrics.PearsonCorrelation(axis=0)]))
    ),
    "metric that is no sum": Case(given(regression(metrics=[Largest]))),
    "Sum of true positives": Case(
        given(regression(loss=losses.Dice, metrics=[metrics.TruePositives, lambda: "AUC"]))
    ),
    "compute_loss of the user": Case(given(regression(model=OwnLoss, kernel="l2"))),
    "compute_metrics of the user": Case(
        given(regression(model=OwnMetrics, metrics=[lambda: "mae"]))
    ),
    "penalties, Dice": Case(
        given(
            regression(
                lambda: layers.Dense(4, activity_regularizer="l1"), kernel="l2", loss=losses.Dice
            )
        )
    ),
    "accumulated gradients, averages, Dice": Case(
        given(
            regression(
                loss=losses.Dice,
                optimizer=lambda: adam(
                    0.02,
                    gradient_accumulation_steps=2,
                    clipnorm=0.1,
                    use_ema=True,
                    ema_overwrite_frequency=2,
                ),
            )
        )
    ),
    "layer of the user": Case(given(regression(Scaled, loss=square_error))),
    "spectral normalization": Case(
        given(regression(lambda: layers.SpectralNormalization(layers.Dense(4)))),
        pieces="changes vector_u in its call",
    ),
    "loss of a tensor in the model": Case(
        given(regression(Keeps, model=LossOfKept)), "a loss takes .* from inside the model's call"
    ),
    "variable moved in call": Case(
        given(regression(Centers)), r"centers \(Centers\) changes center in its call"
    ),
    "variable of TensorFlow moved in call": Case(
        given(regression(Counts)), r"counts \(Counts\) changes Variable.* in its call"
    ),
    "add_loss": Case(given(regression(AddsLoss)), r"adds_loss \(AddsLoss\) adds a loss"),
    "penalty by a function": Case(
        given(regression(lambda: layers.Dense(4, activity_regularizer=lambda a: ops.max(a)))),
        r"dense_1 \(Dense\) adds a loss",
    ),
}
GUARD = [
    ("mean by a function", "2 replicas"),
    ("masked steps", "2 replicas of 2 pieces"),
    ("metric that is no sum", "3 replicas"),
    ("compute_metrics of the user", "2 replicas"),
    ("penalties, Dice", "2 replicas of 2 stages"),
    ("variable moved in call", "2 pieces"),
    ("loss of a tensor in the model", "2 replicas"),
]
TABLE = [(name, layout) for name in CASES for layout in LAYOUTS]


@pytest.fixture(scope="module")
def on_one_device(replicas_of):
    """Return a function from a case's name to the run on one device."""
    return functools.cache(lambda name: run_fresh(CASES[name].workload, replicas_of(1), epochs=2))


@pytest.fixture(scope="module")
def in_parts(replicas_of, loop_on_grid):
    """Return a function that runs a workload in a layout."""

    def run_in(layout, workload):
        num_replicas, num_stages, pieces = LAYOUTS[layout]
        if num_stages == 1:
            return run_fresh(workload, replicas_of(num_replicas), epochs=2, micro_batches=pieces)
        return run(loop_on_grid(workload, num_replicas, num_stages, pieces), workload, epochs=2)

    return run_in


@pytest.mark.parametrize("row", guarded(TABLE, GUARD), ids=": ".join)
def test_parts_of_a_batch_give_the_numbers_of_one_device_or_are_refused(
    row, on_one_device, in_parts
):
    name, layout = row
    case = CASES[name]
    refused = case.refused or (case.pieces if LAYOUTS[layout][2] > 1 else None)

    if refused:
        with pytest.raises(WorkloadError, match=refused):
            in_parts(layout, case.workload)
    else:
        assert furthest(in_parts(layout, case.workload), on_one_device(name)) <= 1e-5


def test_what_compute_metrics_returns_is_logged_as_fit_logs_it(on_one_device, replicas_of):
    name = "compute_metrics of the user"
    history, _ = on_one_device(name)
    by_fit, _ = run_keras_fit(CASES[name].workload, replicas_of(1), epochs=2)

    assert set(by_fit[0]) == {
        f"{prefix}{of}" for prefix in ("", "val_") for of in ("loss", "mae", "spread", "seven")
    }
    assert furthest((history, [np.zeros(1)]), (by_fit, [np.zeros(1)])) <= 1e-6


def test_each_loss_and_metric_of_keras_is_known_to_add_up_or_not():
    assert (len(ROW_LOSSES), len(ROW_METRICS)) == (16, 37), "check those that Keras has added"


SETTINGS = {
    metrics.PrecisionAtRecall: {"recall": 0.5},
    metrics.RecallAtPrecision: {"precision": 0.5},
    metrics.SensitivityAtSpecificity: {"specificity": 0.5},
    metrics.SpecificityAtSensitivity: {"sensitivity": 0.5},
    metrics.IoU: {"num_classes": 4, "target_class_ids": [0, 2]},
    metrics.OneHotIoU: {"num_classes": 4, "target_class_ids": [0, 2]},
    metrics.MeanIoU: {"num_classes": 4},
    metrics.OneHotMeanIoU: {"num_classes": 4},
}
OF_CLASSES = {metrics.Accuracy, metrics.IoU, metrics.MeanIoU}


@pytest.mark.parametrize("kind", sorted(ROW_METRICS, key=str), ids=lambda kind: kind.__name__)
def test_a_metric_that_adds_up_is_that_of_its_parts(kind):
    rng = np.random.default_rng(0)
    labels, soft = rng.integers(0, 4, 6), rng.dirichlet(np.ones(4), 6).astype("float32")
    takes_labels = kind in OF_CLASSES or kind.__name__.startswith("Sparse")
    y_true = labels if takes_labels else np.eye(4, dtype="float32")[labels]
    y_pred = soft.argmax(-1) if kind in OF_CLASSES else soft
    whole, parts = (kind(**SETTINGS.get(kind, {})) for _ in range(2))

    whole.update_state(y_true, y_pred)
    parts.update_state(y_true[:2], y_pred[:2])
    parts.update_state(y_true[2:], y_pred[2:])
    np.testing.assert_allclose(whole.result(), parts.result(), rtol=1e-5)


@pytest.mark.parametrize("kind", sorted(ROW_LOSSES, key=str), ids=lambda kind: kind.__name__)
def test_a_loss_that_adds_up_is_the_mean_of_those_of_parts(kind):
    rng = np.random.default_rng(0)
    y_pred = rng.dirichlet(np.ones(4), (6, 5) if kind is losses.CTC else 6).astype("float32")
    y_true = rng.integers(0, 3, y_pred.shape[:1]) if "Sparse" in kind.__name__ else y_pred[::-1]
    if kind is losses.CategoricalGeneralizedCrossEntropy:
        y_true = rng.integers(0, 3, 6)
    if kind is losses.CTC:
        y_true = rng.integers(1, 3, (6, 2))
    loss = kind(q=0.5) if kind is losses.CategoricalGeneralizedCrossEntropy else kind()

    first, second = loss(y_true[:2], y_pred[:2]), loss(y_true[2:], y_pred[2:])
    assert float(loss(y_true, y_pred)) == pytest.approx(float(first * 2 + second * 4) / 6, rel=1e-5)
