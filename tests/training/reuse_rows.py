"""Rows of a few kinds, on which models of the reuse contract train."""

import keras
import numpy as np

from tune_tf.workload import Data

layers, losses, metrics, optimizers = keras.layers, keras.losses, keras.metrics, keras.optimizers
regularizers, constraints, ops = keras.regularizers, keras.constraints, keras.ops
schedules = optimizers.schedules


def draw(num_rows=20, num_validation=8, shape=(6,), kind="number", **more):
    """Return rows: features of a shape, labels that are numbers or classes."""
    rng = np.random.default_rng(0)
    total = num_rows + num_validation
    x = rng.normal(size=(total, *shape)).astype("float32")
    y = rng.normal(size=(total, 1)).astype("float32")
    if kind == "class":
        y = rng.integers(0, 3, total).astype("int32")
    if kind == "one-hot":
        y = np.eye(3, dtype="float32")[rng.integers(0, 3, total)]
    if kind == "binary":
        y = (y > 0).astype("float32")
    validation = (x[num_rows:], y[num_rows:]) if num_validation else None
    return Data(train=(x[:num_rows], y[:num_rows]), validation=validation, **more)


NUMBERS, CLASSES, SEQUENCES = draw(), draw(kind="class"), draw(shape=(5, 4))
ONE_HOT = draw(kind="one-hot")
IMAGES = draw(shape=(6, 6, 3), kind="one-hot")
IDS = Data(
    train=(np.random.default_rng(0).integers(0, 9, (20, 6)).astype("int32"), NUMBERS.train[1])
)
WORDS = Data(
    train=(
        np.random.default_rng(0).choice(np.array(["a", "b", "c"], "S1"), (20, 1)),
        NUMBERS.train[1],
    )
)
X, Y = NUMBERS.train
TWO_TARGETS = Data(train=(X, (Y, Y**2)))
# Even: fit does not weigh the losses of single outputs by rows.
NAMED = Data(train=({"a": X[:16], "b": X[:16, ::-1].copy()}, {"one": Y[:16], "two": Y[:16] ** 2}))
EVEN = draw(16, 0, shape=(5, 4))
