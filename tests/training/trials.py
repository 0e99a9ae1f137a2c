"""How the tests of this folder make workloads and run trials by hand."""

import keras
import numpy as np

from tune_tf.data import rows_of
from tune_tf.parallelism import Mirrored
from tune_tf.training.build import build_model, build_weights
from tune_tf.training.input.device_rows import place_rows
from tune_tf.training.loop import GraphLoop
from tune_tf.training.seeds import epoch_order
from tune_tf.workload import Data, Workload

SEED = 1234


class Given(Workload):
    """A workload of given parts.

    Args:
        build: From a config to a compiled model.
        data: Its data.
        batch_size: Rows of a global batch, unless the config has a ``batch_size``.
        callbacks: From a config to Keras callbacks.
        structure: What :meth:`structure` returns for a config.
    """

    def __init__(
        self, build, data, batch_size=8, callbacks=lambda config: (), structure=lambda config: None
    ):
        self._build = build
        self._data = data
        self._batch_size = batch_size
        self._callbacks = callbacks
        self._structure = structure

    def load_data(self, config):
        return self._data

    def build_model(self, config):
        return self._build(config)

    def callbacks(self, config):
        return self._callbacks(config)

    def structure(self, config):
        return self._structure(config)

    def global_batch_size(self, config):
        return config.get("batch_size", self._batch_size)


class ByTape(Given):
    """The same with a training step of its own, written as for one device.

    Args:
        loss_by_hand: Whether it computes the compiled loss itself.
    """

    def __init__(self, build, data, *, loss_by_hand=False, **given):
        super().__init__(build, data, **given)
        self._loss_by_hand = loss_by_hand

    def train_step(self, model, batch):
        import tensorflow as tf

        x, y = batch
        with tf.GradientTape() as tape:
            y_pred = model(x, training=True)
            if self._loss_by_hand:
                of_rows = tf.nn.sparse_softmax_cross_entropy_with_logits(y, y_pred)
                loss = tf.reduce_mean(of_rows)
            else:
                loss = model.compute_loss(x, y, y_pred)
        variables = model.trainable_variables
        model.optimizer.apply(tape.gradient(loss, variables), variables)
        for metric in model.metrics:
            if metric.name == "loss":
                metric.update_state(loss, sample_weight=tf.shape(x)[0])
            else:
                metric.update_state(y, y_pred)
        return model.get_metrics_result()


def draw(num_rows, num_validation=0, width=6, classes=3, weights=False, **data):
    """Return learnable rows: ``width`` features, labels of ``classes`` classes."""
    rng = np.random.default_rng(0)
    total = num_rows + num_validation
    x = rng.normal(size=(total, width)).astype("float32")
    y = (x @ rng.normal(size=(width, classes))).argmax(-1).astype("int32")
    parts = (x, y, rng.uniform(0.1, 2, total).astype("float32")) if weights else (x, y)
    cut = [tuple(a[s] for a in parts) for s in (slice(num_rows), slice(num_rows, None))]
    return Data(train=cut[0], validation=cut[1] if num_validation else None, **data)


def begin(loop, workload, config=None, seed=SEED):
    """Start a trial in a loop, as a Trainable does it."""
    config = config or {}
    loop.start(
        workload, config, place_rows(rows_of(workload.load_data(config)), loop._replicas), seed
    )
    return loop


def run(loop, workload, config=None, seed=SEED, epochs=3):
    """Run one trial in a loop; return metrics by epoch and the values of all variables."""
    begin(loop, workload, config, seed)
    history = [loop.epoch() for _ in range(epochs)]
    model = loop.trial.program.model
    values = [v.numpy() for v in (*model.variables, *model.optimizer.variables)]
    loop.finish()
    return history, values


def run_fresh(workload, replicas, config=None, seed=SEED, epochs=3, **spread):
    """Run one trial in a loop of its own; further arguments are those of ``Mirrored``."""
    loop = GraphLoop(replicas, Mirrored(replicas.num, **spread))
    return run(loop, workload, config, seed, epochs)


def built(workload, replicas, config=None, seed=SEED):
    """Return the workload's model with the weights that a trial starts from."""
    config = config or {}
    model = build_model(workload, config, replicas, seed)
    x = rows_of(workload.load_data(config)).train[0]
    build_weights(model, keras.tree.map_structure(lambda a: a[:2], x), replicas)
    return model


def run_keras_fit(workload, replicas, config=None, seed=SEED, epochs=3):
    """Run the same trial by ``keras.Model.fit`` with the same order of rows."""
    config = config or {}
    model = built(workload, replicas, config, seed)
    with replicas.scope():
        model.optimizer.build(model.trainable_variables)  # `fit` builds them without their values
    data = workload.load_data(config)
    train = rows_of(data).train
    history = []
    for epoch in range(epochs):
        order = epoch_order(seed, epoch, rows_of(data).num_train)
        x, y, weights = (*keras.tree.map_structure(lambda a, o=order: a[o], train), None)[:3]
        logs = model.fit(
            x,
            y,
            sample_weight=weights,
            batch_size=workload.global_batch_size(config),
            shuffle=False,
            validation_data=data.validation,
            verbose=0,
        ).history
        history.append({name: values[0] for name, values in logs.items()})
    return history, [v.numpy() for v in (*model.variables, *model.optimizer.variables)]


def furthest(first, second):
    """Return the largest difference of two runs, relative to values above 1.

    Args:
        first: History and variables, as :func:`run` returns them.
        second: The same of another run.
    """
    histories = [sorted(h.items()) for run in (first, second) for h in run[0]]
    one, other = histories[: len(first[0])], histories[len(first[0]) :]
    assert [[n for n, _ in h] for h in one] == [[n for n, _ in h] for h in other]
    metrics = [
        _distance(a, b)
        for h, g in zip(one, other, strict=True)
        for (_, a), (_, b) in zip(h, g, strict=True)
    ]
    return max([*metrics, furthest_values(first[1], second[1])])


def furthest_values(first, second):
    """Return the largest difference of two lists of arrays, relative to values above 1."""
    return max(_distance(a, b) for a, b in zip(first, second, strict=True))


def _distance(a, b):
    a, b = np.asarray(a, "float64"), np.asarray(b, "float64")
    if not a.size:
        return 0.0
    return float(np.max(np.abs(a - b) / np.maximum(1.0, np.abs(b))))


def bits(outcome):
    """Return a run in a form that is equal only where every bit is."""
    history, values = outcome
    return [
        {name: np.asarray(value).tobytes().hex() for name, value in h.items()} for h in history
    ], [value.tobytes().hex() for value in values]


def dense_model(config):
    """Build a model of one layer."""
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(3)])
    model.compile(
        keras.optimizers.SGD(0.1), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    return model


def loop_with(replicas, *callbacks):
    """Return a loop in a trial with callbacks."""
    workload = Given(dense_model, draw(20, 8), callbacks=lambda config: callbacks)
    return begin(GraphLoop(replicas), workload)
