"""How batches go over the replicas: what one may choose, and what is refused."""

import re

import keras
import pytest
import tensorflow as tf
from trials import Given, begin, draw, furthest, furthest_values, run_fresh

from tune_tf.errors import WorkloadError
from tune_tf.parallelism import Mirrored
from tune_tf.training import build
from tune_tf.training.devices import Devices
from tune_tf.training.loop import GraphLoop
from tune_tf.training.replicas import replicas
from tune_tf.training.replicas.replicas import MultiWorkerReplicas, Replicas

pytestmark = pytest.mark.tf
layers = keras.layers
crossentropy = keras.losses.SparseCategoricalCrossentropy


def classifier(*hidden, optimizer=lambda: "sgd", wrap=lambda layers: layers, width=4):
    """Return a builder of a classifier; hidden layers and optimizer are factories."""

    def build(config):
        inner = wrap([layers.Dense(config.get("width", width)), *(make() for make in hidden)])
        model = keras.Sequential([keras.Input((6,)), *inner, layers.Dense(3)])
        model.compile(optimizer(), crossentropy(from_logits=True), metrics=["accuracy"])
        return model

    return build


class Block(layers.Layer):
    """Layers inside a layer of one's own."""

    def __init__(self, parts):
        super().__init__()
        self.parts = parts

    def call(self, x):
        for part in self.parts:
            x = part(x)
        return x


@pytest.mark.parametrize(
    ("num_replicas", "spread", "warned"),
    [
        (2, {}, [r"batch_normalization: .*Mirrored\(synchronized_batch_norm=True\)"]),
        (1, {"micro_batches": 2}, [r"one of 2 pieces of each batch \(micro_batches\)"]),
        (1, {}, []),
        (2, {"synchronized_batch_norm": True}, []),
    ],
    ids=str,
)
def test_statistics_of_parts_of_a_batch_are_warned_of_once(
    num_replicas, spread, warned, replicas_of, caplog
):
    build._warn_once.cache_clear()
    workload = Given(classifier(layers.BatchNormalization), draw(16))
    for _ in range(2):
        begin(GraphLoop(replicas_of(num_replicas), Mirrored(num_replicas, **spread)), workload)

    told = [record.getMessage() for record in caplog.records]
    assert len(told) == len(warned)
    assert all(re.search(*each) for each in zip(warned, told, strict=True))


def test_layers_inside_layers_are_synchronized_too(replicas_of):
    workload = Given(
        classifier(layers.BatchNormalization, wrap=lambda parts: [Block(parts)]), draw(21, 11)
    )

    one = run_fresh(workload, replicas_of(1))
    two = run_fresh(workload, replicas_of(2), synchronized_batch_norm=True)

    assert furthest(two, one) <= 1e-5


class Steps(Given):
    """Trains by a given step, of the model and a batch."""

    def __init__(self, step, build=None):
        super().__init__(build or classifier(), draw(16))
        self._step = step

    def train_step(self, model, batch):
        return self._step(model, batch)


def by_keras(model, batch):
    return model.train_step(batch)


def by_hand(model, batch):
    x, y = batch
    with tf.GradientTape() as tape:
        loss = model.compute_loss(x, y, model(x, training=True))
    variables = model.trainable_variables
    for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
        variable.assign_sub(0.1 * gradient)
    return {"loss": loss}


def without_a_loss(model, batch):
    model.train_step(batch)
    return {"my_loss": 1.0}


def with_second_optimizer(config):
    model = classifier()(config)
    model.critic_optimizer = keras.optimizers.Adam()
    return model


def own_loss(y_true, y_pred):
    return keras.losses.sparse_categorical_crossentropy(y_true, y_pred, from_logits=True)


def with_own_loss(config):
    model = classifier()(config)
    model.compile("sgd", own_loss)
    return model


def with_softmax_over_rows_of_its_output(config):
    parts = [layers.Dense(6), layers.Reshape((2, 3)), layers.Softmax(axis=1)]
    model = keras.Sequential([keras.Input((6,)), *parts])
    model.compile("sgd", lambda y_true, y_pred: keras.ops.mean(y_pred, (1, 2)))
    return model


@pytest.mark.parametrize(
    ("workload", "num_replicas", "spread", "message"),
    [
        pytest.param(
            Steps(lambda *given: by_keras(*given) and None), 1, {},
            "train_step of Steps .*returned None but no loss", id="nothing returned",
        ),
        pytest.param(
            Steps(without_a_loss), 2, {},
            "train_step of Steps .*returned my_loss but no loss", id="no loss returned",
        ),
        pytest.param(
            Steps(by_hand), 2, {}, r"train_step of Steps .* without model\.optimizer", id="by hand"
        ),
        pytest.param(
            Given(with_second_optimizer, draw(16)), 2, {},
            r"besides the compiled one \(critic_optimizer\)", id="two optimizers",
        ),
        pytest.param(
            Steps(by_keras, with_own_loss), 2, {},
            r"the loss own_loss may need the whole batch.*train_step", id="loss of the batch",
        ),
        pytest.param(
            Given(
                classifier(lambda: layers.Dense(4, activity_regularizer="l2"),
                           layers.BatchNormalization),
                draw(16),
            ), 2, {"synchronized_batch_norm": True},
            "activity_regularizer with 2 replicas whose batch normalization is sync", id="penalty",
        ),
        pytest.param(
            Given(with_softmax_over_rows_of_its_output, draw(16)), 2, {},
            "softmax over another axis than the last", id="softmax",
        ),
        pytest.param(
            Steps(by_keras), 1, {"micro_batches": 2},
            "micro_batches is 2, but a custom train_step", id="pieces",
        ),
    ],
)  # fmt: skip
def test_what_several_replicas_or_pieces_cannot_train_is_refused(
    workload, num_replicas, spread, message, replicas_of
):
    with pytest.raises(WorkloadError, match=message):
        run_fresh(workload, replicas_of(num_replicas), **spread)


def copies(variable):
    """Return the values of a variable in all replicas."""
    return [part.numpy() for part in getattr(variable.value, "values", (variable.value,))]


def test_an_overflow_in_one_replica_skips_the_batch_in_all(replicas_of):
    data = draw(32)
    data.train[0][5] = 3e4  # its gradient is no float16 once the loss is scaled

    def build(config):
        keras.config.set_dtype_policy("mixed_float16")
        try:
            return classifier(optimizer=lambda: keras.optimizers.SGD(1e-7))(config)
        finally:
            keras.config.set_dtype_policy("float32")

    def trained(num_replicas):
        workload = Given(build, data)
        loop = begin(GraphLoop(replicas_of(num_replicas)), workload)
        loop.epoch()
        return loop.trial.program.model

    one, two = trained(1), trained(2)

    assert int(one.optimizer.iterations.numpy()) == 3  # of 4 batches
    for alone, mirrored in zip(one.optimizer.variables, two.optimizer.variables, strict=True):
        assert furthest_values(copies(mirrored), copies(alone) * 2) <= 1e-6
    for alone, mirrored in zip(one.variables, two.variables, strict=True):
        assert furthest_values(copies(mirrored), copies(alone) * 2) <= 1e-3


@pytest.mark.parametrize(
    ("names", "reduction"),
    [
        pytest.param(("GPU:0", "GPU:1"), type(None), id="NCCL on GPUs, TensorFlow's default"),
        pytest.param(
            ("CPU:1", "CPU:2"), tf.distribute.ReductionToOneDevice, id="one device on CPUs"
        ),
    ],
)
def test_replicas_add_up_by_what_their_devices_can_do(names, reduction, monkeypatch):
    asked = {}

    def made(self, devices, cross_device_ops):
        asked.update(devices=devices, reduction=cross_device_ops)

    monkeypatch.setattr(tf.distribute.MirroredStrategy, "__init__", made)
    Replicas(Devices(names))

    assert asked["devices"] == list(names)
    assert isinstance(asked["reduction"], reduction)


@pytest.mark.parametrize(("device", "expected"), [("GPU:0", "NCCL"), ("CPU:0", "AUTO")])
def test_workers_exchange_gradients_by_nccl_between_gpus(monkeypatch, device, expected):
    given = {}

    class Strategy:
        num_replicas_in_sync = 2

        def __init__(self, **settings):
            given.update(settings)

    monkeypatch.setenv("TF_CONFIG", "")
    monkeypatch.setattr(replicas, "_MultiWorkerStrategy", Strategy)
    MultiWorkerReplicas(Devices((device,)), ["127.0.0.1:1", "127.0.0.1:2"], 0)

    assert given["communication_options"].implementation.value == expected
