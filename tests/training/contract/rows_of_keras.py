"""Rows of nothing but Keras' own code, whose graphs trials share."""

import keras
import numpy as np
from contract_row import (
    CLASSES,
    EVEN,
    IDS,
    IMAGES,
    NUMBERS,
    ONE_HOT,
    SEQUENCES,
    SEVERAL,
    WORDS,
    Data,
    Row,
    X,
    Y,
    draw,
    layers,
    named,
    of,
    optimizers,
    stacked,
)
from users_workloads import OfRows

losses, metrics = keras.losses, keras.metrics
regularizers, constraints = keras.regularizers, keras.constraints
schedules = optimizers.schedules


def adapted(make, *values, graph=SEVERAL, data=NUMBERS, dtype=None):
    """Return a row whose layer learns the rows that a config holds."""

    def build(rows):
        made = make()
        made.adapt(np.asarray(rows))
        return stacked(made, data=data, dtype=dtype)

    return of(build, *values, data=data, graph=graph)


def undecayed(names):
    optimizer = optimizers.AdamW(0.05, weight_decay=0.5)
    optimizer.exclude_from_weight_decay(var_names=names)
    return stacked(layers.Dense(4, name="one"), layers.Dense(4, name="two"), optimizer=optimizer)


def sharing(which):
    one, two = regularizers.L2(0.5), regularizers.L2(0.01)
    rules = [two if i in which else one for i in range(3)]
    return stacked(*(layers.Dense(4, kernel_regularizer=rule) for rule in rules))


def with_variable(attribute, make):
    """Return a row that sets an attribute of one of the model's variables."""

    def build(which):
        model = stacked(layers.Dense(4, "relu"), layers.Dense(4, "tanh"))
        setattr(model.layers[which].kernel, attribute, make())
        return model

    return of(build, 0, 1, graph=SEVERAL)


def begun(iterations):
    optimizer = optimizers.Adam(schedules.ExponentialDecay(0.1, 5, 0.5))
    optimizer.iterations.assign(iterations)
    return stacked(layers.Dense(4, "relu"), optimizer=optimizer)


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


def listed(units):
    inputs = keras.Input((6,))
    model = keras.Model(inputs, [layers.Dense(1)(layers.Dense(units)(inputs))])
    model.compile("sgd", "mse", metrics=["mae"])
    return model


def stateful(units):
    inputs = keras.Input(batch_shape=(8, 5, 4))
    model = keras.Model(inputs, layers.Dense(1)(layers.GRU(units, stateful=True)(inputs)))
    model.compile(optimizers.SGD(0.1), "mse")
    return model


def _masked():
    """Return sequences with steps of zeros or ones, and a label for each step."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(21, 5, 4)).astype("float32")
    x[rng.uniform(size=(21, 5)) < 0.5] = 0.0
    x[rng.uniform(size=(21, 5)) < 0.3] = 1.0
    y, weights = rng.normal(size=(21, 5, 1)), rng.uniform(0.1, 2.0, (21, 5))
    return x, y.astype("float32"), weights.astype("float32")


MASKED_X, MASKED_Y, WEIGHTS = _masked()
MASKED = Data(train=(MASKED_X, MASKED_Y))


def masked_steps(value):
    """Return a model whose loss is of single steps, some of which are masked."""
    inputs = keras.Input((5, 4))
    hidden = layers.Masking(value)(inputs)
    model = keras.Model(inputs, layers.Dense(1)(layers.GRU(3, return_sequences=True)(hidden)))
    model.compile(optimizers.SGD(0.1), "mse", weighted_metrics=["mae"])
    return model


def list_of_inputs(units):
    a, b = keras.Input((6,)), keras.Input((6,))
    added = layers.Add()([layers.Dense(units)(a), layers.Dense(units)(b)])
    model = keras.Model([a, b], layers.Dense(1)(added))
    model.compile("adam", "mse")
    return model


def two_losses(weight):
    inputs = keras.Input((6,))
    hidden = layers.Dense(8, "tanh", activity_regularizer="l2")(inputs)
    deep = layers.Dense(8, "tanh")(hidden)  # of two stages, each has an output
    outs = [layers.Dense(1, "sigmoid")(each) for each in (hidden, deep)]
    model = keras.Model(inputs, outs)
    weights = [weight, 1.0 - weight]
    model.compile("sgd", [losses.Dice(), "mse"], loss_weights=weights, metrics=[["mae"], []])
    return model


def flat(units):
    inputs = keras.Input((6,))
    model = keras.Model(inputs, layers.Reshape(())(layers.Dense(1)(layers.Dense(units)(inputs))))
    model.compile("sgd", "mse", metrics=["mae"])
    return model


def classified(loss, **compiled):
    out = layers.Dense(3, "softmax")
    return stacked(layers.Dense(8, "relu"), data=CLASSES, out=out, loss=loss, **compiled)


def embedded(optimizer):
    """Return a model whose gradients are sparse, with rows that occur repeatedly."""
    return stacked(layers.Embedding(9, 4), layers.Flatten(), data=IDS, optimizer=optimizer)


def loss_scale(clipnorm):
    inner = optimizers.Adam(0.01, clipnorm=clipnorm)
    scaled = optimizers.LossScaleOptimizer(inner, initial_scale=16.0, dynamic_growth_steps=2)
    return stacked(
        layers.Dense(4, dtype="mixed_float16"), out=layers.Dense(1, dtype="float32"),
        optimizer=scaled,
    )  # fmt: skip


def multi(momentum, rule=".*bias"):
    sgd = optimizers.SGD(0.1, momentum=momentum, clipnorm=0.05, ema_overwrite_frequency=2)
    rules = {rule: sgd}
    made = optimizers.MultiOptimizer(optimizers.OptimizerMap(optimizers.Adam(0.05), rules))
    return stacked(layers.Dense(4), optimizer=made)


ONE_OVER, BINARY = draw(17), draw(kind="binary")
VALUES = {
    "momentum": (0.9, 0.5),
    "rho": (0.9, 0.5),
    "beta_1": (0.9, 0.5),
    "beta_2": (0.99, 0.5),
    "epsilon": (1e-2, 1.0),
    "weight_decay": (0.1, 0.6),
    "clipnorm": (0.05, 0.2),
    "clipvalue": (0.01, 0.05),
    "initial_learning_rate": (0.1, 0.3),
    "alpha": (0.1, 0.5),
    "warmup_target": (0.2, 0.5),
    "rate": (0.2, 0.6),
    "l2": (0.02, 0.2),
}
"""Two values of each number that a graph reads, which matter within a few updates."""


def numbers_of(kind, *names):
    """Return a row of a class whose configs differ in nothing but numbers that a graph reads."""

    def build(which):
        given = {name: VALUES[name][which] for name in names}
        if issubclass(kind, optimizers.Optimizer):
            return stacked(layers.Dense(4, "tanh"), optimizer=kind(0.02, **given))
        if kind is regularizers.L2:
            return stacked(layers.Dense(4, kernel_regularizer=kind(**given)))
        if kind is layers.Dropout:
            return stacked(layers.Dense(4), kind(**given))
        made = kind(decay_steps=4, warmup_steps=2, **given)
        return stacked(layers.Dense(4), optimizer=optimizers.SGD(made, momentum=0.5))

    return of(build, 0, 1)


CARRIED = {
    "numbers of SGD": numbers_of(optimizers.SGD, "momentum", "weight_decay", "clipnorm"),
    "numbers of AdamW": numbers_of(
        optimizers.AdamW, "beta_1", "beta_2", "epsilon", "weight_decay", "clipvalue"
    ),
    "numbers of RMSprop": numbers_of(
        optimizers.RMSprop, "rho", "momentum", "epsilon", "weight_decay", "clipnorm"
    ),
    "numbers of CosineDecay": numbers_of(
        schedules.CosineDecay, "initial_learning_rate", "alpha", "warmup_target"
    ),
    "numbers of Dropout": numbers_of(layers.Dropout, "rate"),
    "numbers of L2": numbers_of(regularizers.L2, "l2"),
}
"""Several numbers of a class at once; ``test_keras_classes.py`` varies each of every class."""


def augmented(layer):
    out = layers.Dense(3, "softmax")
    loss = "categorical_crossentropy"
    return stacked(layer, layers.Flatten(), data=IMAGES, out=out, loss=loss)


def dropout(rate):
    return stacked(layers.Dropout(rate))


ROWS = {
    **CARRIED,
    "momentum or none": of(
        lambda m: stacked(layers.Dense(4), optimizer=optimizers.SGD(0.1, momentum=m)),
        0.0, 0.5, graph=SEVERAL,
    ),
    "clipnorm or none": of(
        lambda c: stacked(layers.Dense(4), optimizer=optimizers.SGD(0.1, clipnorm=c)),
        None, 0.1, graph=SEVERAL,
    ),
    # What configs do not tell
    "delta of Huber": of(lambda d: stacked(loss=losses.Huber(delta=d)), 0.02, 2.0, graph=SEVERAL),
    "axis of CosineSimilarity": of(
        lambda axis: stacked(
            layers.Dense(4), data=ONE_HOT, out=layers.Dense(3, "softmax"),
            loss="categorical_crossentropy", metrics=[metrics.CosineSimilarity(axis=axis)],
        ),
        -1, 0, data=ONE_HOT, graph=SEVERAL,
    ),
    "Normalization.adapt": adapted(layers.Normalization, X, 9 * X),
    "Discretization.adapt": adapted(lambda: layers.Discretization(num_bins=3), X, X + 0.5),
    "IntegerLookup.adapt": adapted(
        lambda: layers.IntegerLookup(output_mode="multi_hot"),
        [1, 1, 2, 3], [3, 3, 2, 1], data=IDS, dtype="int64", graph="StaticHashTable",
    ),
    "TextVectorization.adapt": adapted(
        lambda: layers.TextVectorization(output_mode="multi_hot"),
        ["a", "a", "b", "c"], ["c", "c", "b", "a"], data=WORDS, dtype="string",
        graph="StaticHashTable",
    ),
    "exclude_from_weight_decay": of(undecayed, ["one"], ["two"], graph=SEVERAL),
    "which layers share a regularizer": of(sharing, (0,), (1,), (0, 1), graph=SEVERAL),
    "regularizer of a variable": with_variable("regularizer", lambda: regularizers.L2(0.5)),
    "constraint of a variable": with_variable("constraint", lambda: constraints.MaxNorm(0.1)),
    "trainable of a variable": with_variable("trainable", lambda: False),
    "preset iterations": of(begun, 0, 10),
    "LossScaleOptimizer": of(loss_scale, 0.1, 0.5),
    "MultiOptimizer": of(multi, 0.5, 0.9),
    "which variables each of a MultiOptimizer has": of(
        lambda rule: multi(0.9, rule), ".*bias", ".*kernel", graph=SEVERAL
    ),
    "shared layer": of(shared_layer, True, False, graph=SEVERAL),
    "nested model": of(nested, True, False, graph=SEVERAL),
    # Updates
    "last batch of one row": of(
        lambda m: stacked(
            layers.Dense(4, "relu", activity_regularizer="l2"),
            optimizer=optimizers.SGD(0.1, momentum=m, global_clipnorm=0.1), data=ONE_OVER,
        ),
        0.9, 0.5, data=ONE_OVER,
    ),
    "averaged weights": of(
        # fit writes the averages into the weights at its end, which would be every epoch here
        lambda m: stacked(layers.Dense(4), optimizer=optimizers.SGD(0.1, use_ema=True)),
        None, by_fit=False,
    ),
    "accumulated gradients, clipped": of(
        lambda clip: stacked(
            layers.Dense(4),
            optimizer=optimizers.AdamW(
                schedules.CosineDecay(0.02, 40), global_clipnorm=clip,
                gradient_accumulation_steps=4,
            ),
        ),
        0.1, 0.2,
    ),
    "accumulated gradients, averages overwrite weights, constraint, Dice": of(
        lambda clip: stacked(
            layers.Dense(8, kernel_constraint=constraints.MaxNorm(0.5), activity_regularizer="l1"),
            out=layers.Dense(3, "softmax"), data=ONE_HOT, loss=losses.Dice(),
            optimizer=optimizers.Adam(
                0.02, use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=2,
                gradient_accumulation_steps=3, clipnorm=clip,
            ),
        ),
        0.1, 0.2, by_fit=False, data=ONE_HOT,
    ),
    "sparse gradients, clipped": of(
        lambda clip: embedded(optimizers.Adam(0.02, clipnorm=clip)), 0.05, 0.1, data=IDS
    ),
    "sparse gradients, accumulated": of(
        lambda _: embedded(optimizers.Adam(0.02, gradient_accumulation_steps=2)), None, data=IDS
    ),
    "batch normalization": of(
        lambda m: stacked(layers.Dense(4), layers.BatchNormalization(momentum=m)),
        0.9, 0.5, graph=SEVERAL,
    ),
    "spectral normalization": of(
        lambda units: stacked(layers.SpectralNormalization(layers.Dense(units))),
        3, 4, graph=SEVERAL,
    ),
    # Generators and states
    "LSTM with dropout": of(
        lambda rate: stacked(layers.LSTM(3, dropout=rate), data=SEQUENCES),
        0.5, 0.3, data=SEQUENCES, graph=SEVERAL,
    ),
    "stateful GRU": of(stateful, 3, 4, graph=SEVERAL, data=EVEN),
    "MixUp": of(
        lambda alpha: augmented(layers.MixUp(alpha=alpha)), 0.2, 0.4, data=IMAGES, graph=SEVERAL
    ),
    # It draws from Python's generator while it is traced.
    "AugMix": of(
        lambda seed: augmented(layers.AugMix(value_range=(0, 1), seed=seed)),
        1, 2, data=IMAGES, by_fit=False, graph="AugMix, which draws",
    ),
    # Rows, masks and weights
    "two inputs, two outputs": of(
        named_parts, (0.7, 0.3), (0.3, 0.7), data=named(16), graph=SEVERAL
    ),
    # fit does not weigh the losses of single outputs by rows.
    "two inputs, two outputs, uneven": of(
        named_parts, (0.7, 0.3), (0.3, 0.7), data=named(21), graph=SEVERAL, by_fit=False
    ),
    "two outputs, last batch of one row": of(
        named_parts, (0.7, 0.3), (0.3, 0.7), data=named(17), graph=SEVERAL, by_fit=False
    ),
    "list of inputs": of(
        list_of_inputs, 3, 4, data=Data(train=([X, 2 * X], Y)), graph=SEVERAL
    ),
    "two outputs, one with Dice": of(
        two_losses, 0.3, 0.5, data=Data(train=(X, [Y, 1 - Y])), graph=SEVERAL, by_fit=False
    ),
    "output without an axis of its own": of(
        flat, 3, 4, data=Data(train=(X, Y[:, 0])), graph=SEVERAL
    ),
    "output in a list": of(listed, 3, 4, graph=SEVERAL),
    "Masking of the loss": of(
        masked_steps, 0.0, 1.0, data=MASKED, graph=SEVERAL,
    ),
    "masked steps with weights": of(
        masked_steps, 0.0, 1.0, data=Data(train=(MASKED_X, MASKED_Y, WEIGHTS)), graph=SEVERAL,
    ),
    "mask of an embedding": of(
        lambda mask: stacked(layers.Embedding(9, 3, mask_zero=mask), layers.GRU(3), data=IDS),
        True, False, data=IDS, graph=SEVERAL,
    ),
    "class_weight": Row(OfRows(), [{"class_weight": w} for w in ({0: 0.2}, {0: 3.0})]),
    "sample_weight": Row(OfRows(), [{"weights": w} for w in ((0.1, 2.0), (2.0, 0.1))]),
    "Dice": of(
        lambda axis: stacked(
            layers.Dense(4), data=ONE_HOT, out=layers.Dense(3, "softmax"),
            loss=losses.Dice(axis=axis),
        ),
        -1, None, graph=SEVERAL, data=ONE_HOT,
    ),
    "loss that ignores a class": of(
        lambda c: classified(losses.SparseCategoricalCrossentropy(ignore_class=c)),
        0, 1, graph=SEVERAL, data=CLASSES,
    ),
    # Crossentropies go by the logits, which the outputs of a whole batch must not hide.
    "probabilities that round to 0": of(
        lambda spread: stacked(
            layers.Dense(6), data=ONE_HOT,
            loss="categorical_crossentropy", metrics=[metrics.CosineSimilarity()],
            out=layers.Dense(
                3, "softmax", kernel_initializer=keras.initializers.RandomNormal(0.0, spread, 1)
            ),
            optimizer=optimizers.SGD(1e-3),
        ),
        60.0, 80.0, data=ONE_HOT, graph=SEVERAL,
    ),
    "loss that is a sum": of(
        lambda _: stacked(loss=losses.MeanSquaredError(reduction="sum")), None
    ),
    "mean by sample weight": of(
        lambda _: stacked(loss=losses.MeanSquaredError(reduction="mean_with_sample_weight")),
        None, data=Data(train=(X, Y, np.linspace(0.1, 2.0, len(Y)).astype("float32"))),
    ),
    "metrics that are no means": of(
        lambda threshold: stacked(
            data=BINARY, out=layers.Dense(1, "sigmoid"), loss="binary_crossentropy",
            metrics=["AUC", metrics.Precision(), metrics.F1Score(threshold=threshold)],
        ),
        0.5, 0.6, graph=SEVERAL, data=BINARY,
    ),
    # compile
    "loss_weights": of(lambda w: stacked(loss_weights=w), 0.5, 2.0, graph=SEVERAL),
    # An even number of batches: fit would take one of the next epoch.
    "steps_per_execution": of(
        lambda n: stacked(steps_per_execution=n), 1, 2, data=draw(16), graph=SEVERAL
    ),
    "jit_compile": of(lambda j: stacked(jit_compile=j), False, True, graph=SEVERAL),
    # Tiny data
    "one row": of(dropout, 0.3, 0.5, data=draw(1, 1)),
    "batch larger than the rows": of(dropout, 0.3, 0.5, data=draw(5, 3), batch_size=64),
    "batch of one row": of(dropout, 0.3, 0.5, data=draw(5, 3), batch_size=1),
}  # fmt: skip
