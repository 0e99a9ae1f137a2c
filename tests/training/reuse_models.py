"""Rows, models and workloads that depend on something that their config does not tell."""

import types

import keras
import numpy as np
import tensorflow as tf
from reuse_layers import ByHand, Does, Later, Unwritable
from trials import Given

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


def adapted(layer, *after, data=NUMBERS, dtype=None):
    """Return a builder of a model whose layer learns the rows that a config holds."""

    def build(rows):
        made = layer()
        made.adapt(np.asarray(rows))
        return stacked(made, *(a() for a in after), data=data, dtype=dtype)

    return build


class StepOfModel(Given):
    """Weighs the loss by an attribute of the model, which ``build_model`` sets."""

    def build_model(self, config):
        model = stacked(layers.Dense(4, "relu"))
        model.push = config["value"]
        return model

    def weight(self, model):
        return model.push

    def train_step(self, model, batch):
        x, y = batch
        with tf.GradientTape() as tape:
            loss = self.weight(model) * model.compute_loss(x, y, model(x, training=True))
        variables = model.trainable_variables
        model.optimizer.apply(tape.gradient(loss, variables), variables)
        for metric in model.metrics:
            metric.update_state(*([loss] if metric.name == "loss" else [y, y]))
        return model.get_metrics_result()


class StepOfWorkload(StepOfModel):
    """The same with an attribute of the workload."""

    def build_model(self, config):
        self.push = config["value"]
        return stacked(layers.Dense(4, "relu"))

    def weight(self, model):
        return self.push


class StepOfInstance(StepOfModel):
    """Sets a ``train_step`` on the workload itself."""

    def build_model(self, config):
        push = config["value"]
        self.weight = lambda model: push
        return stacked(layers.Dense(4, "relu"))


class StepWithCount(StepOfModel):
    """Makes a variable at the first call, and carries a number of the optimizer's."""

    def build_model(self, config):
        self.count = None
        return stacked(layers.Dropout(config["value"] / 4))

    def weight(self, model):
        if self.count is None:
            self.count = tf.Variable(0.0, trainable=False)
        return self.count.assign_add(1.0)


class StepByChance(StepOfModel):
    """The same with a weight of Keras' own generator."""

    def build_model(self, config):
        return stacked(layers.Dense(config["value"], "relu"))

    def weight(self, model):
        return keras.random.uniform(())


def named_like(body):
    if body == "half":

        def gelu(x):
            return x / 2
    else:

        def gelu(x):
            return ops.abs(x)

    return stacked(layers.Dense(4, activation=gelu))


def undecayed(names):
    optimizer = optimizers.AdamW(0.05, weight_decay=0.5)
    optimizer.exclude_from_weight_decay(var_names=names)
    return stacked(layers.Dense(4, name="one"), layers.Dense(4, name="two"), optimizer=optimizer)


def sharing(which):
    one, two = regularizers.L2(0.5), regularizers.L2(0.01)
    rules = [two if i in which else one for i in range(3)]
    return stacked(*(layers.Dense(4, kernel_regularizer=rule) for rule in rules))


def with_variable(attribute, make):
    """Return a builder that sets an attribute of one of the model's variables."""

    def build(which):
        model = stacked(layers.Dense(4, "relu"), layers.Dense(4, "tanh"))
        setattr(model.layers[which].kernel, attribute, make())
        return model

    return build


def patched(name, make):
    """Return a builder of a model of which one instance has another method."""

    def build(value):
        model = stacked(layers.Dense(4, "relu"))
        setattr(model, name, types.MethodType(make(value), model))
        return model

    return build


def weighed_loss(value):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return value * keras.Model.compute_loss(self, x, y, y_pred, sample_weight, training)

    return compute_loss


def weighed_step(value):
    def step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = value * self.compute_loss(x, y, self(x, training=True))
        variables = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        self.metrics[0].update_state(loss)
        return self.get_metrics_result()

    return step


def weighed_call(value):
    def call(self, x, training=None, mask=None):
        return value * keras.Sequential.call(self, x, training=training, mask=mask)

    return call


def patched_layer(value):
    model = stacked(layers.Dense(4, "relu"))
    model.layers[0].call = lambda x, **_: value * x @ model.layers[0].kernel
    return model


def begun(iterations):
    optimizer = optimizers.Adam(schedules.ExponentialDecay(0.1, 5, 0.5))
    optimizer.iterations.assign(iterations)
    return stacked(layers.Dense(4, "relu"), optimizer=optimizer)


def unwritable(*, activation="relu", outputs=1, loss="mse", **compiled):
    model = Unwritable(object(), activation, outputs)
    model.compile(optimizers.SGD(0.1), loss, **compiled)
    return model


def hiding(change):
    """Return a builder of a model with a layer of the user's own, which ``change`` gives a value.

    Args:
        change: From a value to what the layer does.
    """

    def build(value):
        return stacked(layers.Dense(4), change(value), layers.Dense(3))

    return build


def adding(**seed):
    draw = keras.initializers.RandomNormal(**seed)
    return Does(lambda x: x + draw((4,)))


def by_hand(factor):
    model = ByHand(factor)
    model.compile(optimizers.SGD(0.1), "mse")
    return model


def shared_layer(is_shared):
    inputs = keras.Input((6,))
    one = layers.Dense(6, "relu")
    two = one if is_shared else layers.Dense(6, "relu")
    model = keras.Model(inputs, layers.Dense(1)(two(one(inputs))))
    model.compile(optimizers.SGD(0.1), "mse")
    return model


def nested(frozen):
    inner = keras.Sequential([keras.Input((6,)), layers.Dense(4, "relu"), layers.Dropout(0.3)])
    inner.trainable = not frozen
    return stacked(inner)


def named_parts(weights):
    a, b = keras.Input((6,), name="a"), keras.Input((6,), name="b")
    hidden = layers.Dense(4, "tanh")(layers.Concatenate()([a, b]))
    outs = {name: layers.Dense(1, name=name)(hidden) for name in ("one", "two")}
    model = keras.Model({"a": a, "b": b}, outs)
    model.compile(
        optimizers.Adam(0.02),
        loss={"one": "mse", "two": "mae"},
        loss_weights=dict(zip(("one", "two"), weights, strict=True)),
        metrics={"two": [metrics.RootMeanSquaredError()]},
    )
    return model


class OfRows(Given):
    """A workload whose class weights or sample weights are in the config."""

    def load_data(self, config):
        if "weights" in config:
            x, y = CLASSES.train
            return Data(train=(x, y, np.linspace(*config["weights"], len(y)).astype("float32")))
        return draw(kind="class", class_weight=config["class_weight"])


def classifier(config):
    return stacked(
        layers.Dense(4, "relu"),
        data=CLASSES,
        out=layers.Dense(3, "softmax"),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
        weighted_metrics=["accuracy"],
    )


def recurrent(layer, **ordinary):
    """Return a builder of a recurrent model of arguments of its layer."""

    def build(arguments):
        return stacked(layer(3, **ordinary | arguments), data=SEQUENCES)

    return build


def stateful(layer, size):
    def build(units):
        inputs = keras.Input(batch_shape=(size, 5, 4))
        model = keras.Model(inputs, layers.Dense(1)(layer(units, stateful=True)(inputs)))
        model.compile(optimizers.SGD(0.1), "mse")
        return model

    return build


def masked(value):
    return stacked(layers.Masking(value), layers.LSTM(3), data=SEQUENCES)


def masked_words(mask_zero):
    return stacked(layers.Embedding(9, 3, mask_zero=mask_zero), layers.GRU(3), data=IDS)


def attentive(arguments):
    inputs = keras.Input((5, 4))
    mixed = layers.MultiHeadAttention(2, 2, **arguments)(inputs, inputs, use_causal_mask=True)
    model = keras.Model(inputs, layers.Dense(1)(layers.GlobalAveragePooling1D()(mixed)))
    model.compile(optimizers.SGD(0.1), "mse")
    return model


def of_policy(arguments):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_float16")
    try:
        return stacked(layers.Dense(4), out=layers.Dense(1, dtype="float32"), **arguments)
    finally:
        keras.config.set_dtype_policy(before)


def multi(which):
    rules = {f".*{which}": optimizers.SGD(0.1)}
    made = optimizers.MultiOptimizer(optimizers.OptimizerMap(optimizers.Adam(0.05), rules))
    return stacked(layers.Dense(4), optimizer=made)


def stacked_later(rate):
    model = Later(rate)
    model.compile(optimizers.SGD(0.1), "mse")
    return model
