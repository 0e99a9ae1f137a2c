"""What a model can depend on without saying so: one entry a way in which reuse could go wrong."""

import collections
import functools
import math
import random
import types
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from reuse_values import names_of_functions
from trials import Given

from tune_tf.workload import Data, Workload

layers, losses, metrics, optimizers = keras.layers, keras.losses, keras.metrics, keras.optimizers
regularizers, constraints, ops = keras.regularizers, keras.constraints, keras.ops
schedules = optimizers.schedules


@dataclass(frozen=True)
class Finding:
    """A workload and configs that must not be taken for each other.

    Args:
        workload: What is trained.
        configs: The trials.
        by_fit: Whether ``fit`` trains by the same rules.
    """

    workload: Workload
    configs: Any
    by_fit: bool = True


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


def of(build, *configs, data=NUMBERS, by_fit=True, **given):
    """Return a finding of a builder and the values of its config, as ``value``."""
    return Finding(
        Given(lambda config: build(config["value"]), data, **given),
        [{"value": value} for value in configs],
        by_fit,
    )


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


def scaling(name, factor):
    def activation(x):
        return factor * x

    activation.__name__ = activation.__qualname__ = name
    return activation


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


class DrawnRate(keras.callbacks.Callback):
    """Draws a learning rate by NumPy's and Python's global generators."""

    def on_epoch_end(self, epoch, logs=None):
        drawn = np.random.uniform() + random.random()  # noqa: NPY002
        self.model.optimizer.learning_rate.assign(0.01 * (1 + drawn))


class Freeze(keras.callbacks.Callback):
    """Freezes a layer when training begins."""

    def __init__(self, which):
        super().__init__()
        self.which = which

    def on_train_begin(self, logs=None):
        for number, layer in enumerate(self.model.layers):
            layer.trainable = number != self.which


class Patch(keras.callbacks.Callback):
    """Sets a rate of a layer when training begins."""

    def __init__(self, rate):
        super().__init__()
        self.rate = rate

    def on_train_begin(self, logs=None):
        self.model.layers[1].negative_slope = self.rate


class Unwritable(keras.Model):
    """A model that Keras cannot serialize."""

    def __init__(self, made=None, activation="relu", outputs=1):
        super().__init__()
        self.made = made
        self.hidden = layers.Dense(4, activation=activation)
        self.outs = [layers.Dense(1, name=f"out{i}") for i in range(outputs)]

    def call(self, x):
        outs = [out(self.hidden(x)) for out in self.outs]
        return outs[0] if len(outs) == 1 else tuple(outs)

    def get_config(self):
        raise NotImplementedError


def unwritable(*, activation="relu", outputs=1, loss="mse", **compiled):
    model = Unwritable(object(), activation, outputs)
    model.compile(optimizers.SGD(0.1), loss, **compiled)
    return model


X, Y = NUMBERS.train
TWO_TARGETS = Data(train=(X, (Y, Y**2)))


def hiding(change):
    """Return a builder of a model with a layer of the user's own, which ``change`` gives a value.

    Args:
        change: From a value to what the layer does.
    """

    def build(value):
        return stacked(layers.Dense(4), change(value), layers.Dense(3))

    return build


KNOB = {"value": 1.0}
LEVEL = 1.0


def scaled_by_global(x):
    return LEVEL * x


def set_global(value):
    global LEVEL
    LEVEL = value
    return Does(scaled_by_global)


def set_item(value):
    KNOB["value"] = value
    return Does(lambda x: KNOB["value"] * x)


class Does(layers.Layer):
    """A layer that does what it is given."""

    def __init__(self, act):
        super().__init__()
        self.act = act

    def call(self, x):
        return self.act(x)


class Holds(layers.Layer):
    """A layer that multiplies by what it holds."""

    def __init__(self, held):
        super().__init__()
        self.held = held

    def call(self, x):
        return x * self.held


class OfClass(layers.Layer):
    """A layer that multiplies by an attribute of its class."""

    factor = 1.0

    def call(self, x):
        return x * self.factor


def set_class(value):
    OfClass.factor = value
    return OfClass()


class Draws(layers.Layer):
    """A layer that multiplies by a number of its own generator, drawn while it is traced."""

    def __init__(self, generator):
        super().__init__()
        self.generator = generator

    def call(self, x):
        return x * self.generator.random()


def adding(**seed):
    draw = keras.initializers.RandomNormal(**seed)
    return Does(lambda x: x + draw((4,)))


class Missing(layers.Layer):
    """A layer that multiplies by what a mapping gives for a key that it lacks."""

    def __init__(self, table):
        super().__init__()
        self.look_up = lambda: table["missing"]

    def call(self, x):
        return x * self.look_up()


class Masked(layers.Layer):
    """A layer that multiplies by an array of which some parts are masked."""

    def __init__(self, array):
        super().__init__()
        self.array = array

    def call(self, x):
        return x * self.array.filled(0)


def table(default):
    made = tf.lookup.KeyValueTensorInitializer(tf.constant([1]), tf.constant([3.0]))
    return tf.lookup.StaticHashTable(made, default)


class Looked(layers.Layer):
    """A layer that multiplies by what a table has for a key that it lacks."""

    def __init__(self, table):
        super().__init__()
        self.table = table

    def call(self, x):
        return x * self.table.lookup(tf.constant(7))


class Noisy(layers.Layer):
    """A layer that adds what a generator draws."""

    def __init__(self, generator):
        super().__init__()
        self.generator = generator

    def call(self, x):
        return x + self.generator.normal((4,))


class AsText(layers.Layer):
    """A layer that reads the rate of a dropout as text."""

    def __init__(self, dropout):
        super().__init__()
        self.dropout = dropout

    def call(self, x):
        return self.dropout(x) * (2.0 if f"{self.dropout.rate:.1f}" == "0.3" else 1.0)


class AsTextByC(AsText):
    """A layer that reads the rate of a dropout as text by code that is not Python's own."""

    def call(self, x):
        return self.dropout(x) * (2.0 if "%.1f" % self.dropout.rate == "0.3" else 1.0)  # noqa: UP031


class IsClose(AsText):
    """A layer that compares the rate of a dropout by code that is not Python's own."""

    def call(self, x):
        return self.dropout(x) * (2.0 if math.isclose(self.dropout.rate, 0.3) else 1.0)


class Slots:
    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value


class OwnLoss(losses.Loss):
    def __init__(self, power):
        super().__init__()
        self.power = power

    def call(self, y_true, y_pred):
        return ops.mean(ops.abs(y_true - y_pred) ** self.power, -1)


class OwnMetric(metrics.MeanAbsoluteError):
    factor = 1.0

    def result(self):
        return self.factor * super().result()


class OwnRegularizer(regularizers.Regularizer):
    def __init__(self, rate):
        self.rate = rate

    def __call__(self, x):
        return self.rate * ops.sum(ops.abs(x))


class OwnConstraint(constraints.Constraint):
    def __init__(self, limit):
        self.limit = limit

    def __call__(self, w):
        return ops.clip(w, -self.limit, self.limit)


class OwnSchedule(schedules.LearningRateSchedule):
    def __init__(self, rate):
        self.rate = rate

    def __call__(self, step):
        return self.rate / (1.0 + ops.cast(step, "float32"))


class OwnOptimizer(optimizers.SGD):
    push = 1.0

    def update_step(self, gradient, variable, learning_rate):
        super().update_step(gradient * self.push, variable, learning_rate)


def with_attribute(made, name, value):
    setattr(made, name, value)
    return made


class ByHand(keras.Model):
    """A subclassed model with a number in its ``call``."""

    def __init__(self, factor):
        super().__init__()
        self.factor = factor
        self.hidden, self.out = layers.Dense(4, "relu"), layers.Dense(1)

    def call(self, x):
        return self.out(self.factor * self.hidden(x))


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


# Even: fit does not weigh the losses of single outputs by rows.
NAMED = Data(train=({"a": X[:16], "b": X[:16, ::-1].copy()}, {"one": Y[:16], "two": Y[:16] ** 2}))


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


def judged(*made, kind="one-hot", units=3):
    """Return a builder of a classifier with some metrics, of the number of each."""
    data = draw(kind=kind)
    last = functools.partial(layers.Dense, units, "softmax" if units > 1 else "sigmoid")
    loss = "categorical_crossentropy" if units > 1 else "binary_crossentropy"
    return of(
        lambda i: stacked(layers.Dense(4), data=data, out=last(), loss=loss, metrics=[made[i]()]),
        *range(len(made)),
        data=data,
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


EVEN = draw(16, 0, shape=(5, 4))


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


def augmented(layer, *values, by_fit=True):
    def build(value):
        return stacked(
            layer(value),
            layers.Flatten(),
            data=IMAGES,
            out=layers.Dense(3, "softmax"),
            loss="categorical_crossentropy",
        )

    return of(build, *values, data=IMAGES, by_fit=by_fit)


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


def is_known(module, name):
    """Return whether Keras takes the name of a function, as it does of all but one."""
    try:
        return bool(module.get(name))
    except ValueError:
        return False


FINDINGS = {
    # The structure key misses what Keras does not serialize
    "delta of Huber": of(lambda d: stacked(loss=losses.Huber(delta=d)), 0.02, 0.2, 2.0),
    "axis of CosineSimilarity": judged(
        *(functools.partial(metrics.CosineSimilarity, axis=a) for a in (-1, 0))
    ),
    "Normalization.adapt": of(adapted(layers.Normalization), X, 9 * X, X + 3),
    "Discretization.adapt": of(adapted(lambda: layers.Discretization(num_bins=3)), X, X + 0.5),
    "IntegerLookup.adapt": of(
        adapted(lambda: layers.IntegerLookup(output_mode="multi_hot"), data=IDS, dtype="int64"),
        [1, 1, 2, 3],
        [3, 3, 2, 1],
        data=IDS,
    ),
    "StringLookup.adapt": of(
        adapted(lambda: layers.StringLookup(output_mode="multi_hot"), data=WORDS, dtype="string"),
        ["a", "a", "b", "c"],
        ["c", "c", "b", "a"],
        data=WORDS,
    ),
    "TextVectorization.adapt": of(
        adapted(
            lambda: layers.TextVectorization(output_mode="multi_hot"), data=WORDS, dtype="string"
        ),
        ["a", "a", "b", "c"],
        ["c", "c", "b", "a"],
        data=WORDS,
    ),
    "train_step reads the model": Finding(
        StepOfModel(None, NUMBERS), [{"value": 0.5}, {"value": 2.0}]
    ),
    "train_step reads the workload": Finding(
        StepOfWorkload(None, NUMBERS), [{"value": 0.5}, {"value": 2.0}]
    ),
    "activation called like one of Keras'": of(
        lambda k: stacked(layers.Dense(4, activation=scaling("leaky_relu", k))), 0.5, 2.0
    ),
    "activation called gelu with another body": of(named_like, "half", "abs"),
    "exclude_from_weight_decay": of(undecayed, ["one"], ["two"], ["bias"]),
    "which layers share a regularizer": of(sharing, (0,), (1,), (2,), (0, 1), (1, 2)),
    "regularizer of a variable": of(
        with_variable("regularizer", lambda: regularizers.L2(0.5)), 0, 1
    ),
    "constraint of a variable": of(
        with_variable("constraint", lambda: constraints.MaxNorm(0.1)), 0, 1
    ),
    "trainable of a variable": of(with_variable("trainable", lambda: False), 0, 1),
    "compile(auto_scale_loss)": of(of_policy, *({"auto_scale_loss": a} for a in (True, False))),
    "compute_loss of an instance": of(patched("compute_loss", weighed_loss), 0.5, 2.0),
    "train_step of an instance": of(patched("train_step", weighed_step), 0.5, 2.0),
    "call of an instance": of(patched("call", weighed_call), 0.5, 2.0),
    "call of a layer's instance": of(patched_layer, 0.5, 2.0),
    "preset iterations": of(begun, 0, 10, 0),
    "callback that freezes a layer": of(
        lambda which: stacked(layers.Dense(4, "relu"), layers.Dense(4, "tanh")),
        0,
        1,
        2,
        callbacks=lambda config: [Freeze(config["value"])],
    ),
    "callback that changes a layer": of(
        lambda rate: stacked(layers.Dense(4), layers.LeakyReLU(0.1)),
        0.2,
        0.5,
        callbacks=lambda config: [Patch(config["value"])],
    ),
    "callback that draws": of(
        lambda rate: stacked(layers.Dropout(rate)),
        0.2,
        0.5,
        callbacks=lambda config: [DrawnRate()],
    ),
    "train_step that makes a variable at its first call": Finding(
        StepWithCount(None, NUMBERS), [{"value": 0.5}, {"value": 2.0}], by_fit=False
    ),
    "loss_weights of a vouched model": of(
        lambda w: unwritable(outputs=2, loss=["mse", "mae"], loss_weights=w),
        [1.0, 0.2],
        [0.2, 1.0],
        data=TWO_TARGETS,
        structure=lambda config: "one",
        by_fit=False,
    ),
    "metrics of a vouched model": of(
        lambda name: unwritable(metrics=[name]), "mae", "mape", structure=lambda config: "one"
    ),
    "activation of a vouched model's optimizer": of(
        lambda delta: unwritable(loss=losses.Huber(delta=delta)),
        0.1,
        1.0,
        structure=lambda config: "one",
    ),
    # A reused process is not bit-equal to a fresh one
    **{
        f"{layer.__name__} with {argument}": of(
            recurrent(layer), *({argument: rate} for rate in (0.5, 0.3, 0.5)), data=SEQUENCES
        )
        for layer in (layers.LSTM, layers.GRU, layers.SimpleRNN)
        for argument in ("dropout", "recurrent_dropout")
    },
    **{
        f"stateful {layer.__name__}, batches of {size}": of(
            stateful(layer, size), 3, 3, 4, data=EVEN, batch_size=size
        )
        for layer in (layers.LSTM, layers.GRU)
        for size in (2, 8)
    },
    "MixUp": augmented(lambda a: layers.MixUp(alpha=a), 0.2, 0.2, 0.4),
    "CutMix": augmented(lambda f: layers.CutMix(factor=f), 0.8, 0.8, 0.3),
    "RandomFlip": augmented(layers.RandomFlip, "horizontal", "horizontal", "vertical"),
    # By fit it draws from where the process' own generator stands.
    "generator without a seed in a train_step": Finding(
        StepByChance(None, NUMBERS), [{"value": 4}, {"value": 4}, {"value": 3}], by_fit=False
    ),
    "weights made at the first call, with dropout": of(
        lambda rate: stacked_later(rate), 0.5, 0.3, 0.5
    ),
    # Code of the user's own
    "default argument": of(hiding(lambda k: Does(lambda x, k=k: k * x)), 0.5, 2.0),
    "closure": of(hiding(lambda k: Does(lambda x: k * x)), 0.5, 2.0),
    "Lambda layer": of(hiding(lambda k: layers.Lambda(lambda x: k * x)), 0.5, 2.0),
    "module global": of(hiding(set_global), 0.5, 2.0),
    "item of a module global": of(hiding(set_item), 0.5, 2.0),
    "partial": of(hiding(lambda k: Does(functools.partial(ops.multiply, k))), 0.5, 2.0),
    "bound method": of(
        hiding(lambda k: Does(types.SimpleNamespace(f=scaling("f", k)).f)), 0.5, 2.0
    ),
    "attribute": of(hiding(Holds), 0.5, 2.0),
    "array": of(hiding(lambda k: Holds(np.float32([k, 1, 1, 1]))), 0.5, 2.0),
    "constant": of(hiding(lambda k: Holds(tf.constant([k, 1.0, 1.0, 1.0]))), 0.5, 2.0),
    "class attribute": of(hiding(set_class), 0.5, 2.0),
    "random.Random": of(hiding(lambda k: Draws(random.Random(k))), 1, 2, by_fit=False),
    "numpy generator": of(hiding(lambda k: Draws(np.random.default_rng(k))), 1, 2, by_fit=False),
    "initializer that is called in a step": of(hiding(lambda k: adding(seed=k)), 1, 2),
    "initializer without a seed that is called in a step": of(hiding(lambda k: adding()), 1, 2),
    "number drawn while the model is built": of(hiding(lambda k: Holds(random.random())), 1, 2),
    "defaultdict": of(hiding(lambda k: Missing(collections.defaultdict(lambda: k))), 0.5, 2.0),
    "maxlen of a deque": of(
        hiding(lambda k: Does(lambda x, d=collections.deque(maxlen=k): x * float(d.maxlen))), 1, 2
    ),
    "masked array": of(
        hiding(lambda k: Masked(np.ma.array(np.ones(4, "float32"), mask=[k, 0, 0, 0]))), 0, 1
    ),
    "default of a lookup table": of(hiding(lambda k: Looked(table(k))), 0.5, 2.0),
    "carried number as text": of(lambda r: stacked(AsText(layers.Dropout(r))), 0.3, 0.5),
    "carried number as text by C": of(lambda r: stacked(AsTextByC(layers.Dropout(r))), 0.3, 0.5),
    "carried number compared by C": of(lambda r: stacked(IsClose(layers.Dropout(r))), 0.3, 0.5),
    "variable of TensorFlow": of(
        hiding(lambda k: Holds(tf.Variable(k, trainable=False))), 0.5, 2.0
    ),
    "generator of TensorFlow": of(
        hiding(lambda k: Noisy(tf.random.Generator.from_seed(k))), 1, 2, by_fit=False
    ),
    "slots": of(hiding(lambda k: Holds(Slots(k).value)), 0.5, 2.0),
    "train_step of the workload's instance": Finding(
        StepOfInstance(None, NUMBERS), [{"value": 0.5}, {"value": 2.0}], by_fit=False
    ),
    "own loss": of(lambda p: stacked(loss=OwnLoss(p)), 1.0, 2.0),
    "loss function": of(
        lambda k: stacked(loss=lambda y, p: k * ops.mean(ops.square(y - p), -1)), 0.5, 2.0
    ),
    "own metric": of(
        lambda k: stacked(metrics=[with_attribute(OwnMetric(), "factor", k)]), 0.5, 2.0
    ),
    "metric function": of(lambda k: stacked(metrics=[scaled_error(k)]), 0.5, 2.0),
    "own regularizer": of(
        lambda r: stacked(layers.Dense(4, kernel_regularizer=OwnRegularizer(r))), 0.1, 0.5
    ),
    "regularizer function": of(
        lambda r: stacked(layers.Dense(4, kernel_regularizer=lambda w: r * ops.sum(w * w))),
        0.1,
        0.5,
    ),
    "own constraint": of(
        lambda r: stacked(layers.Dense(4, kernel_constraint=OwnConstraint(r))), 0.1, 0.3
    ),
    "own schedule": of(lambda r: stacked(optimizer=optimizers.SGD(OwnSchedule(r))), 0.1, 0.3),
    "own optimizer": of(
        lambda k: stacked(optimizer=with_attribute(OwnOptimizer(0.1), "push", k)), 0.5, 2.0
    ),
    "callable learning rate": of(
        lambda r: stacked(optimizer=optimizers.SGD(lambda: r)), 0.1, 0.3, by_fit=False
    ),
    "own initializer": of(
        lambda k: stacked(layers.Dense(4, kernel_initializer=lambda s, dtype=None: k * tf.ones(s))),
        0.1,
        0.3,
    ),
    "subclassed model": of(by_hand, 0.5, 2.0),
    "activation of a subclassed model": of(lambda a: unwritable(activation=a), "relu", "tanh"),
    "AugMix, which draws by Python's generator while it is traced": augmented(
        lambda seed: layers.AugMix(value_range=(0, 1), seed=seed), None, 1, 2, by_fit=False
    ),
    "losses by name": of(
        lambda name: stacked(data=ONE_HOT, out=layers.Dense(3, "softmax"), loss=name),
        *(
            n
            for n in names_of_functions(losses)
            if n not in ("ctc", "circle") and "sparse" not in n and is_known(losses, n)
        ),
        data=ONE_HOT,
    ),
    # Models of several parts
    "shared layer": of(shared_layer, True, False),
    "nested model": of(nested, True, False),
    "two inputs, two outputs": of(named_parts, (0.7, 0.3), (0.3, 0.7), data=NAMED),
    "MultiOptimizer": of(multi, "kernel", "bias"),
    "class_weight": Finding(
        OfRows(classifier, None), [{"class_weight": w} for w in ({0: 0.2}, {0: 3.0}, {1: 2.0})]
    ),
    "sample_weight": Finding(
        OfRows(classifier, None), [{"weights": w} for w in ((0.1, 2.0), (2.0, 0.1))]
    ),
    "Masking": of(masked, 0.0, 1.0, data=SEQUENCES),
    "mask of an embedding": of(masked_words, True, False, data=IDS),
    "Bidirectional": of(
        lambda mode: stacked(
            layers.Bidirectional(layers.LSTM(3, dropout=0.3), merge_mode=mode), data=SEQUENCES
        ),
        "sum",
        "mul",
        "sum",
        data=SEQUENCES,
    ),
    "attention": of(attentive, {"dropout": 0.3}, {"dropout": 0.5}, {}, data=SEQUENCES),
    "AUC": judged(
        *(functools.partial(metrics.AUC, num_thresholds=n) for n in (10, 20)),
        functools.partial(metrics.AUC, curve="PR"),
        kind="binary",
        units=1,
    ),
    "F1Score": judged(
        *(functools.partial(metrics.F1Score, average=a) for a in ("macro", "micro", "weighted"))
    ),
    "MeanIoU": judged(
        *(functools.partial(metrics.OneHotMeanIoU, 3, ignore_class=c) for c in (None, 0, 1))
    ),
    "metrics with other thresholds": judged(
        *(functools.partial(metrics.Precision, thresholds=t) for t in (0.3, 0.5)),
        kind="binary",
        units=1,
    ),
    # compile
    "loss_weights": of(lambda w: stacked(loss_weights=w), 0.5, 2.0),
    "weighted_metrics": of(lambda m: stacked(weighted_metrics=m), ["mae"], ["mape"], None),
    # An even number of batches: fit would take one of the next epoch.
    "steps_per_execution": of(lambda n: stacked(steps_per_execution=n), 1, 2, data=draw(16)),
    "jit_compile": of(lambda j: stacked(jit_compile=j), False, True, "auto"),
    # Tiny data
    "one row": of(lambda r: stacked(layers.Dropout(r)), 0.3, 0.5, data=draw(1, 1)),
    "batch larger than the rows": of(
        lambda r: stacked(layers.Dropout(r)), 0.3, 0.5, data=draw(5, 3), batch_size=64
    ),
    "batch of one row": of(
        lambda r: stacked(layers.Dropout(r)), 0.3, 0.5, data=draw(5, 3), batch_size=1
    ),
}


def scaled_error(factor):
    def error(y, p):
        return factor * ops.mean(ops.abs(y - p), -1)

    return error


class Later(keras.Model):
    """A model whose weights wait for the first call, with dropout."""

    def __init__(self, rate):
        super().__init__()
        self.parts = [layers.Dense(4, "relu"), layers.Dropout(rate), layers.Dense(1)]

    def call(self, x, training=None):
        for part in self.parts:
            x = part(x, training=training) if isinstance(part, layers.Dropout) else part(x)
        return x


def stacked_later(rate):
    model = Later(rate)
    model.compile(optimizers.SGD(0.1), "mse")
    return model
