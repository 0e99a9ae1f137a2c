"""What ``keras.Model.fit`` makes of a trial."""

from collections.abc import Iterable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tune_tf.data import rows_of
from tune_tf.testing.reuse_contract import NUM_EPOCHS, SEED, ContractRun
from tune_tf.trainables.trial_process import PickledWorkload
from tune_tf.training.callbacks import plain_value
from tune_tf.training.checkpoint import variable_names
from tune_tf.training.seeds import epoch_order, seed_python_and_numpy
from tune_tf.workload import Config, Workload

FIT_TOLERANCE = 1e-6
"""Largest allowed difference from ``keras.Model.fit``, relative to values above 1."""


def train_by_fit(workload: Workload, config: Config) -> ContractRun:
    """Train a trial with ``keras.Model.fit``, with a workload of its own."""
    workload = PickledWorkload.of(workload).load("the test")
    rows = rows_of(workload.load_data(config))
    size = workload.global_batch_size(config)
    # tf.data takes a list for one tensor.
    parts: Any = rows.train
    parts = tuple(tuple(part) if isinstance(part, list) else part for part in parts)
    seed_python_and_numpy(SEED)
    model = workload.build_model(config)
    if type(workload).train_step is not Workload.train_step:
        model.train_step = lambda batch: workload.train_step(model, batch)
    signature = tf.nest.map_structure(
        lambda a: tf.TensorSpec((None, *a.shape[1:]), tf.as_dtype(a.dtype)), parts
    )

    def batches() -> Iterable[Any]:
        for epoch in range(NUM_EPOCHS):
            order: Any = np.arange(rows.num_train)
            if workload.shuffle(config):
                order = epoch_order(SEED, epoch, rows.num_train)
            for first in range(0, rows.num_train, size):
                batch = order[first : first + size]
                yield tf.nest.map_structure(lambda a, batch=batch: a[batch], parts)

    values: list[Any] = []

    def read_values(epoch: int, logs: Any) -> None:
        values[:] = [v.numpy() for v in (*model.variables, *model.optimizer.variables)]

    seed = keras.callbacks.LambdaCallback(lambda epoch, _: seed_python_and_numpy(SEED + epoch))
    # On each epoch's end: at the end of training, fit replaces the weights with their averages.
    last = keras.callbacks.LambdaCallback(on_epoch_end=read_values)
    logs = model.fit(
        tf.data.Dataset.from_generator(batches, output_signature=signature),
        epochs=NUM_EPOCHS,
        steps_per_epoch=-(-rows.num_train // size),
        validation_data=rows.validation,
        validation_batch_size=size,
        callbacks=[seed, *workload.callbacks(config), last],
        shuffle=False,
        verbose=0,
    ).history
    history = [
        {name: plain_value(metric[epoch]) for name, metric in logs.items()}
        for epoch in range(NUM_EPOCHS)
    ]
    paths = [name.path for name in variable_names(model)]
    return ContractRun(history, values, paths, len(model.variables))


def distance(run: ContractRun, other: ContractRun) -> float:
    """Return the largest difference of two runs, relative to values above 1.

    Infinity if the runs differ in metric names or model variables. Optimizer slots of only one
    run are ignored: ``fit`` creates none for variables that a callback froze.
    """
    if [sorted(metrics) for metrics in run.history] != [sorted(it) for it in other.history]:
        return float("inf")
    pairs = [
        (metrics[name], other_metrics[name])
        for metrics, other_metrics in zip(run.history, other.history, strict=True)
        for name in metrics
    ]
    values, other_values = _values_by_variable(run), _values_by_variable(other)
    if not all(of_optimizer for of_optimizer, *_ in values.keys() ^ other_values.keys()):
        return float("inf")
    pairs += [(values[key], other_values[key]) for key in values.keys() & other_values.keys()]
    return max((_distance(one, two) for one, two in pairs), default=0.0)


def _values_by_variable(run: ContractRun) -> dict[tuple[bool, str, int], Any]:
    """Return values by (of the optimizer, path, number of earlier variables with this path)."""
    paths = [(number >= run.num_of_model, path) for number, path in enumerate(run.paths)]
    keys = [(*path, paths[:number].count(path)) for number, path in enumerate(paths)]
    return dict(zip(keys, run.values, strict=True))


def _distance(one: Any, other: Any) -> float:
    a, b = np.asarray(one).astype("float64"), np.asarray(other).astype("float64")
    with np.errstate(all="ignore"):
        difference = np.abs(a - b) / np.maximum(1.0, np.abs(b))
    is_same = (a == b) | (np.isnan(a) & np.isnan(b))
    difference = np.where(is_same, 0.0, np.nan_to_num(difference, nan=np.inf))
    return float(difference.max(initial=0.0))
