"""Models and data for comparing ways to train: one entry a feature that could go wrong."""

from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
from trials import ByTape, Given, draw

from tune_tf.workload import Data, Workload

layers, losses, metrics, optimizers = (
    keras.layers,
    keras.losses,
    keras.metrics,
    keras.optimizers,
)
schedules = optimizers.schedules


@dataclass(frozen=True)
class Case:
    """A workload and where it is the same however many replicas train it.

    Args:
        workload: What is trained.
        keras: Within what ``keras.Model.fit`` gives the same.
        replicas: Within what several replicas give the same; None: they do not.
        weights_only: Whether metrics of several replicas differ by design.
    """

    workload: Workload
    keras: float = 1e-6
    replicas: float | None = 1e-5
    weights_only: bool = False


def mlp(
    *hidden,
    optimizer=None,
    regularizer=None,
    loss=None,
    model=keras.Sequential,
    **compile_arguments,
):
    """Return a builder of a small classifier with given hidden layers; arguments are factories."""

    def build(config):
        made = model(
            [
                keras.Input((6,)),
                layers.Dense(
                    8, activation="relu", kernel_regularizer=regularizer and regularizer()
                ),
                *(layer() for layer in hidden),
                layers.Dense(3),
            ]
        )
        made.compile(
            optimizer=(optimizer or (lambda: optimizers.SGD(0.1, momentum=0.9)))(),
            loss=(loss or (lambda: losses.SparseCategoricalCrossentropy(from_logits=True)))(),
            **{name: make() for name, make in compile_arguments.items()},
        )
        return made

    return build


class OwnStep(keras.Sequential):
    """A model that trains itself."""

    def train_step(self, data):
        import tensorflow as tf

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


class LazyModel(keras.Model):
    """A model whose weights wait for the first call."""

    def __init__(self):
        super().__init__()
        self.hidden = layers.Dense(8, activation="relu")
        self.out = layers.Dense(3)

    def call(self, x):
        return self.out(self.hidden(x))


def lazy(config):
    """Build a model without input shapes."""
    model = LazyModel()
    model.compile(
        "sgd", losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"]
    )
    return model


def two_outputs(config):
    """Build a functional model with two inputs by name and two outputs with weighted losses."""
    a, b = keras.Input((6,), name="a"), keras.Input((6,), name="b")
    hidden = layers.Dense(8, activation="tanh")(layers.Concatenate()([a, b]))
    model = keras.Model(
        {"a": a, "b": b},
        {
            "kind": layers.Dense(3, name="kind")(hidden),
            "size": layers.Dense(1, name="size")(hidden),
        },
    )
    model.compile(
        optimizers.Adam(0.02),
        loss={"kind": losses.SparseCategoricalCrossentropy(from_logits=True), "size": "mse"},
        loss_weights={"kind": 0.7, "size": 0.3},
        metrics={"kind": ["accuracy"], "size": ["mae"]},
    )
    return model


def list_inputs(config):
    """Build a functional model of a list of inputs."""
    a, b = keras.Input((6,)), keras.Input((6,))
    model = keras.Model(
        [a, b], layers.Dense(3)(layers.Add()([layers.Dense(4)(a), layers.Dense(4)(b)]))
    )
    model.compile("adam", losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def embedding(optimizer):
    """Return a builder of a model whose gradients are sparse, with rows that occur repeatedly."""

    def build(config):
        model = keras.Sequential(
            [keras.Input((6,)), layers.Embedding(20, 4), layers.Flatten(), layers.Dense(3)]
        )
        model.compile(optimizer(), losses.SparseCategoricalCrossentropy(from_logits=True))
        return model

    return build


def constrained(optimizer):
    """Return a builder of a classifier whose weights are constrained after each update."""

    def build(config):
        hidden = layers.Dense(8, kernel_constraint=keras.constraints.MaxNorm(0.5))
        model = keras.Sequential([keras.Input((6,)), hidden, layers.Dense(3)])
        model.compile(optimizer(), losses.SparseCategoricalCrossentropy(from_logits=True))
        return model

    return build


def binary_auc(config):
    """Build a binary classifier with metrics that are no means over rows."""
    model = keras.Sequential([keras.Input((6,)), layers.Dense(1, activation="sigmoid")])
    model.compile(
        optimizers.SGD(0.1),
        "binary_crossentropy",
        metrics=["AUC", metrics.Precision(), metrics.F1Score(threshold=0.5)],
    )
    return model


def _data_of_two_outputs(num_rows):
    data = draw(num_rows, num_rows % 8 + 16)

    def parts(x, y):
        return {"a": x, "b": x[:, ::-1].copy()}, {"kind": y, "size": x[:, :1] ** 2}

    return Data(train=parts(*data.train), validation=parts(*data.validation))


def _data_in_lists():
    (x, y), (vx, vy) = draw(29, 11).train, draw(29, 11).validation
    return Data(train=([x, 2 * x], y), validation=([vx, 2 * vx], vy))


def _words():
    rng = np.random.default_rng(0)
    words = rng.integers(0, 20, (29, 6)).astype("int32")
    return Data(train=(words, words[:, 0] % 3))


def _two_classes():
    data = draw(45, 19)
    return Data(
        train=(data.train[0], (data.train[1] > 0)[:, None].astype("float32")),
        validation=(data.validation[0], (data.validation[1] > 0)[:, None].astype("float32")),
    )


EVEN, UNEVEN, ONE_OVER = 48, 45, 41
"""Rows of training sets in batches of 8: the last batch has 8, 5 or 1 rows."""


def _table() -> "dict[str, Case]":
    accuracy: dict[str, Any] = {"metrics": lambda: ["accuracy"]}
    data = {rows: draw(rows, 19) for rows in (EVEN, UNEVEN, ONE_OVER)}

    def simple(*hidden, rows=UNEVEN, **arguments):
        return Given(mlp(*hidden, **(accuracy | arguments)), data[rows])

    return {
        "SGD with momentum, even": Case(simple(rows=EVEN)),
        "SGD with momentum, uneven": Case(simple()),
        "SGD with momentum, one row over": Case(simple(rows=ONE_OVER)),
        "Adam": Case(simple(optimizer=lambda: optimizers.Adam(0.01))),
        "AdamW": Case(simple(optimizer=lambda: optimizers.AdamW(0.01, weight_decay=0.1))),
        "RMSprop": Case(simple(optimizer=lambda: optimizers.RMSprop(0.01, momentum=0.5))),
        "clipnorm": Case(
            simple(rows=ONE_OVER, optimizer=lambda: optimizers.SGD(0.1, clipnorm=0.1))
        ),
        "clipvalue": Case(
            simple(rows=ONE_OVER, optimizer=lambda: optimizers.SGD(0.1, clipvalue=0.01))
        ),
        "global_clipnorm": Case(
            simple(rows=ONE_OVER, optimizer=lambda: optimizers.SGD(0.1, global_clipnorm=0.1))
        ),
        "exponential decay": Case(
            simple(optimizer=lambda: optimizers.SGD(schedules.ExponentialDecay(0.2, 3, 0.9)))
        ),
        "cosine decay": Case(
            simple(
                optimizer=lambda: optimizers.Adam(
                    schedules.CosineDecay(0.01, 20, warmup_target=0.05, warmup_steps=4)
                )
            )
        ),
        "averaged weights": Case(
            # fit writes the averages into the weights at its end, which would be every epoch here
            simple(optimizer=lambda: optimizers.SGD(0.1, use_ema=True)),
            keras=float("inf"),
        ),
        "averages overwrite weights": Case(
            simple(
                optimizer=lambda: optimizers.SGD(
                    0.1, momentum=0.9, use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=4
                )
            ),
            keras=float("inf"),
        ),
        "accumulated gradients, clipped": Case(
            simple(
                rows=ONE_OVER,
                optimizer=lambda: optimizers.AdamW(
                    schedules.CosineDecay(0.02, 40),
                    global_clipnorm=0.1,
                    gradient_accumulation_steps=4,
                ),
            )
        ),
        "accumulated gradients, averages overwrite weights, constraint": Case(
            Given(
                constrained(
                    lambda: optimizers.Adam(
                        0.02,
                        use_ema=True,
                        ema_momentum=0.9,
                        ema_overwrite_frequency=2,
                        gradient_accumulation_steps=3,
                    )
                ),
                data[UNEVEN],
            ),
            keras=float("inf"),
        ),
        "dropout": Case(simple(lambda: layers.Dropout(0.4)), keras=0.0, replicas=None),
        "batch normalization": Case(simple(layers.BatchNormalization), replicas=None),
        "synchronized batch normalization": Case(
            simple(lambda: layers.BatchNormalization(synchronized=True), rows=ONE_OVER)
        ),
        "L2 penalty": Case(simple(rows=ONE_OVER, regularizer=lambda: keras.regularizers.L2(0.01))),
        "activity penalty": Case(
            simple(
                lambda: layers.ActivityRegularization(l2=0.01),
                rows=ONE_OVER,
            )
        ),
        "class weight": Case(
            Given(mlp(**accuracy), draw(UNEVEN, 19, class_weight={0: 0.2, 1: 3.0})),
        ),
        "sample weight": Case(
            Given(
                mlp(**accuracy, weighted_metrics=lambda: ["accuracy"]),
                draw(UNEVEN, 19, weights=True),
            )
        ),
        "metrics that are no means": Case(Given(binary_auc, _two_classes())),
        "two inputs, two outputs, even": Case(Given(two_outputs, _data_of_two_outputs(EVEN))),
        # fit does not weigh the losses of single outputs by rows
        "two inputs, two outputs, uneven": Case(
            Given(two_outputs, _data_of_two_outputs(ONE_OVER)), keras=float("inf")
        ),
        "list of inputs": Case(Given(list_inputs, _data_in_lists())),
        "sparse gradients": Case(
            Given(embedding(lambda: optimizers.SGD(0.1, momentum=0.9)), _words())
        ),
        "sparse gradients, Adam, clipnorm": Case(
            Given(embedding(lambda: optimizers.Adam(0.02, clipnorm=0.05)), _words())
        ),
        "sparse gradients, Adam, accumulated": Case(
            Given(embedding(lambda: optimizers.Adam(0.02, gradient_accumulation_steps=2)), _words())
        ),
        "weights made at the first call": Case(Given(lazy, data[UNEVEN])),
        "own train_step, even": Case(
            Given(mlp(model=OwnStep), data[EVEN], batch_size=6),
        ),
        "own train_step, uneven, clipped": Case(
            Given(
                mlp(model=OwnStep, optimizer=lambda: optimizers.SGD(0.1, global_clipnorm=0.1)),
                data[UNEVEN],
            )
        ),
        "own train_step, fewer rows over than replicas": Case(
            Given(mlp(model=OwnStep), data[ONE_OVER]),
            weights_only=True,  # each replica counts the last rows
        ),
        "train_step of the workload": Case(
            ByTape(
                mlp(
                    optimizer=lambda: optimizers.Adam(
                        0.02, global_clipnorm=0.1, gradient_accumulation_steps=2
                    ),
                    **accuracy,
                ),
                data[UNEVEN],
            )
        ),
        "train_step of the workload, loss by hand": Case(
            ByTape(mlp(**accuracy), data[UNEVEN], loss_by_hand=True),
            keras=float("inf"),  # fit does not run it
        ),
        "batch of all rows": Case(Given(mlp(**accuracy), data[EVEN], batch_size=EVEN)),
        "batch larger than the data": Case(Given(mlp(**accuracy), data[UNEVEN], batch_size=100)),
        "no validation": Case(Given(mlp(**accuracy), draw(UNEVEN))),
    }


CASES = _table()
