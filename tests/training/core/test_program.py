"""An epoch as one graph call: what it refuses and what it reports."""

import types

import keras
import numpy as np
import pytest
import tensorflow as tf
from guards import guarded
from trials import ByTape, Given, begin, bits, draw, furthest, run, run_fresh, run_keras_fit

from tune_tf.errors import WorkloadError
from tune_tf.training.core.build import build_model
from tune_tf.training.core.loop import GraphLoop
from tune_tf.training.core.replicas import Replicas
from tune_tf.training.devices import Devices
from tune_tf.workload import Data

pytestmark = pytest.mark.tf
layers, losses, optimizers = keras.layers, keras.losses, keras.optimizers
crossentropy = losses.SparseCategoricalCrossentropy


def classifier(*hidden, model=keras.Sequential, **arguments):
    """Return a builder of a classifier; hidden layers and compile arguments are factories."""

    def build(config):
        made = model([keras.Input((6,)), *(layer() for layer in hidden), layers.Dense(3)])
        given = {"optimizer": lambda: "sgd", "loss": lambda: crossentropy(from_logits=True)}
        made.compile(**{name: make() for name, make in (given | arguments).items()})
        return made

    return build


@pytest.mark.parametrize(
    ("build", "message"),
    [
        pytest.param(
            lambda config: "model", "must return a compiled keras.Model, not str", id="str"
        ),
        pytest.param(
            lambda config: keras.Sequential([keras.Input((6,)), layers.Dense(3)]),
            r"not compiled: call model\.compile",
            id="not compiled",
        ),
        pytest.param(classifier(run_eagerly=lambda: True), "run_eagerly=True", id="eager"),
    ],
)
def test_what_is_no_compiled_model_is_refused(build, message, replicas_of):
    workload = Given(build, draw(20))

    with pytest.raises(WorkloadError, match=message):
        begin(GraphLoop(workload, replicas_of(1)), workload)


@pytest.mark.parametrize(
    ("workload", "message"),
    [
        pytest.param(
            Given(classifier(), draw(20), batch_size=2),
            "global batch size 2 is smaller than the 3 replicas",
            id="batch",
        ),
        pytest.param(
            Given(
                classifier(loss=lambda: crossentropy(True, reduction="mean_with_sample_weight")),
                draw(20),
            ),
            "reduction mean_with_sample_weight cannot be split",
            id="reduction",
        ),
        pytest.param(
            Given(classifier(layers.BatchNormalization), draw(17)),
            r"Mirrored\(synchronized_batch_norm=True\)",
            id="statistics of no rows",
        ),
    ],
)
def test_what_replicas_cannot_do_exactly_is_refused(workload, message, replicas_of):
    with pytest.raises(WorkloadError, match=message):
        begin(GraphLoop(workload, replicas_of(3)), workload)


class LogsOnly(keras.Sequential):
    """A model whose step returns a number of its own."""

    def train_step(self, data):
        import tensorflow as tf

        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x, y, self(x, training=True))
        variables = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        return {"loss": loss, "my_loss": loss}


class ByItself(keras.Sequential):
    """A model compiled without a loss, which its steps make."""

    def _own(self, data, training):
        x, y = data
        y = keras.ops.one_hot(y, 3)
        return keras.ops.mean((self(x, training=training) - y) ** 2)

    def train_step(self, data):
        import tensorflow as tf

        with tf.GradientTape() as tape:
            loss = self._own(data, True)
        variables = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        return {"loss": loss}

    def test_step(self, data):
        return {"loss": self._own(data, False)}


@pytest.mark.parametrize(
    ("build", "names"),
    [
        pytest.param(classifier(model=LogsOnly), {"loss", "my_loss", "val_loss"}, id="other names"),
        pytest.param(
            classifier(model=ByItself, loss=lambda: None), {"loss", "val_loss"}, id="no loss"
        ),
    ],
)
@pytest.mark.parametrize("num_rows", guarded([48, 45], [45]))
def test_what_an_own_step_returns_is_reported_as_fit_does(build, names, num_rows, replicas_of):
    workload = Given(build, draw(num_rows, 16))
    outcome = run_fresh(workload, replicas_of(1))

    assert set(outcome[0][0]) == names
    assert furthest(outcome, run_keras_fit(workload, replicas_of(1))) <= 1e-6


def test_metrics_of_an_own_validation_step_do_not_depend_on_replicas(replicas_of):
    class Tested(keras.Sequential):
        def test_step(self, data):
            return super().test_step(data)

    workload = Given(classifier(model=Tested, metrics=lambda: ["accuracy"]), draw(48, 16))
    one, two = (run_fresh(workload, replicas_of(num)) for num in (1, 2))

    assert furthest(two, one) <= 1e-5


def test_validation_after_an_own_train_step_counts_each_row_once(replicas_of):
    workload = ByTape(
        classifier(metrics=lambda: [keras.metrics.SparseCategoricalAccuracy()]), draw(48, 19)
    )
    one, two = (run_fresh(workload, replicas_of(num)) for num in (1, 2))

    assert furthest(two, one) <= 1e-5


def test_fewer_rows_than_replicas_are_enough(replicas_of):
    workload = Given(
        classifier(lambda: layers.Dense(4, kernel_regularizer="l2")), draw(2, 2), batch_size=8
    )
    one, three = (run_fresh(workload, replicas_of(num)) for num in (1, 3))

    assert furthest(three, one) <= 1e-5


@pytest.mark.parametrize("rows_over", [0, 1])
def test_variables_that_no_loss_reaches_stay(rows_over, replicas_of):
    def build(config):
        x = keras.Input((6,))
        model = keras.Model(x, [layers.Dense(3, name="a")(x), layers.Dense(1, name="b")(x)])
        model.compile("sgd", loss=[crossentropy(from_logits=True), None])
        return model

    (x, y), z = draw(40 + rows_over).train, np.zeros(40 + rows_over, "float32")
    workload = Given(build, Data(train=(x, [y, z])))
    one, three = (run_fresh(workload, replicas_of(num)) for num in (1, 3))

    assert furthest(three, one) <= 1e-5


@pytest.mark.slow
def test_a_model_compiled_for_xla_gives_the_same_numbers(replicas_of):
    workload, compiled = (
        Given(
            classifier(
                lambda: layers.Dense(8, activation="relu"),
                optimizer=lambda: optimizers.Adam(0.01, clipnorm=0.1),
                jit_compile=lambda jit=jit: jit,
            ),
            draw(45, 19),
        )
        for jit in (False, True)
    )

    plain, by_xla = (run(GraphLoop(w, replicas_of(1)), w) for w in (workload, compiled))
    assert furthest(by_xla, plain) <= 1e-5


@pytest.mark.parametrize(
    ("device", "options", "is_compiled"),
    [
        ("CPU:0", {}, False),
        ("CPU:0", {"jit_compile": True}, True),
        ("GPU:0", {}, True),
        ("GPU:0", {"jit_compile": False}, False),
    ],
)
def test_keras_chooses_xla_for_trials_on_a_gpu_only(device, options, is_compiled, monkeypatch):
    cards = [types.SimpleNamespace(device_type="GPU")]
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind=None: cards)
    build = classifier(**{name: lambda value=value: value for name, value in options.items()})
    model = build_model(Given(build, draw(4)), {}, Replicas(Devices((device,))), seed=0)

    assert model.jit_compile is is_compiled


def test_a_model_that_xla_cannot_compile_trains_without_it(replicas_of, caplog):
    def build(config):
        def shifted_by_length(x):
            digits = tf.strings.length(tf.strings.as_string(x))  # no kernel of XLA
            return x + 0.1 * tf.cast(digits, x.dtype)

        shift = layers.Lambda(shifted_by_length, output_shape=(6,))
        model = keras.Sequential([keras.Input((6,)), shift, layers.Dense(3)])
        loss = crossentropy(from_logits=True)
        model.compile("sgd", loss, metrics=["accuracy"], jit_compile=config["jit"])
        return model

    workload = Given(build, draw(45, 19))
    plain, by_xla = (run_fresh(workload, replicas_of(1), {"jit": jit}) for jit in (False, True))
    assert bits(by_xla) == bits(plain)
    assert "XLA cannot compile this model (AsString), so it trains without" in caplog.text


@pytest.mark.parametrize("num_replicas", guarded([1, 2], [2]))
@pytest.mark.parametrize(
    ("policy", "tolerance"), [("mixed_bfloat16", 2e-2), ("mixed_float16", 5e-3)]
)
def test_half_precision_trains_near_full_precision(policy, tolerance, num_replicas, replicas_of):
    def build(config):
        model = keras.Sequential(
            [
                keras.Input((6,)),
                layers.Dense(8, activation="relu", dtype=policy),
                layers.Dense(3, dtype="float32"),
            ]
        )
        optimizer = optimizers.SGD(0.1, global_clipnorm=0.5)
        if config.get("scaled"):
            optimizer = optimizers.LossScaleOptimizer(optimizer)
        model.compile(optimizer, crossentropy(from_logits=True))
        return model

    workload = Given(build, draw(45, 19))
    config = {"scaled": policy == "mixed_float16"}
    half, _ = run_fresh(workload, replicas_of(num_replicas), config)
    full, _ = run_fresh(
        Given(
            classifier(
                lambda: layers.Dense(8, activation="relu"),
                optimizer=lambda: optimizers.SGD(0.1, global_clipnorm=0.5),
            ),
            draw(45, 19),
        ),
        replicas_of(1),
    )

    for one, other in zip(half, full, strict=True):
        assert one == pytest.approx(other, rel=tolerance)


def test_several_epochs_are_traced_once(replicas_of):
    traced = []

    class Noting(layers.Layer):
        def call(self, x):
            traced.append(x.shape)
            return x

    workload = Given(classifier(Noting), draw(48))
    loop = begin(GraphLoop(workload, replicas_of(1)), workload)
    loop.epoch()
    before = len(traced)
    loop.epoch(), loop.epoch()

    assert len(traced) == before
