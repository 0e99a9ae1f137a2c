"""Rows of the contract: a workload, its configs, and what must hold of their trials."""

from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
from trials import Given

from tune_tf.workload import Data, Workload

layers, optimizers = keras.layers, keras.optimizers

ONE, SEVERAL = "one", "several"


@dataclass(frozen=True)
class Row:
    """A workload and configs that must not be taken for each other.

    Args:
        workload: What is trained.
        configs: The trials.
        graph: ``ONE`` if all configs share a graph, ``SEVERAL`` if each has its own, which later
            trials of it share; else the user's code that is traced for each trial, as a pattern.
        by_fit: Whether ``fit`` trains by the same rules.
        restarts: Whether it goes on from a checkpoint; not where TensorFlow's kernels hold state.
    """

    workload: Workload
    configs: Any = ({},)
    graph: str = ONE
    by_fit: bool = True
    restarts: bool = True


def draw(num_rows=21, num_validation=8, shape=(6,), kind="number", **more):
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
ONE_HOT, IMAGES = draw(kind="one-hot"), draw(shape=(6, 6, 3), kind="one-hot")
IDS = Data(
    train=(np.random.default_rng(0).integers(0, 9, (21, 6)).astype("int32"), NUMBERS.train[1])
)
WORDS = Data(
    train=(
        np.random.default_rng(0).choice(np.array(["a", "b", "c"], "S1"), (21, 1)),
        NUMBERS.train[1],
    )
)
X, Y = NUMBERS.train


def named(num_rows):
    """Return rows of two inputs and two outputs, by name."""
    x, y = X[:num_rows], Y[:num_rows]
    return Data(train=({"a": x, "b": x[:, ::-1].copy()}, {"one": y, "two": y**2}))


EVEN = draw(16, 0, shape=(5, 4))


def stacked(
    *hidden,
    data=NUMBERS,
    loss="mse",
    optimizer=None,
    out=None,
    model=keras.Sequential,
    dtype=None,
    **compiled,
):
    """Return a compiled model of a stack of layers."""
    shape = data.train[0].shape[1:]
    made = model([keras.Input(shape, dtype=dtype), *hidden, out or layers.Dense(1)])
    made.compile(optimizer or optimizers.SGD(0.02, momentum=0.9), loss, **compiled)
    return made


def of(build, *values, graph=ONE, data=NUMBERS, by_fit=True, restarts=True, **given):
    """Return a row of a builder, which takes the ``value`` of each config."""
    workload = Given(lambda config: build(config["value"]), data, **given)
    return Row(workload, [{"value": value} for value in values], graph, by_fit, restarts)
