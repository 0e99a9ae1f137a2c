"""Models with frozen layers at their beginning, by a trial's config, and rows for them."""

import keras
import numpy as np

from tune_tf.workload import Data

L = keras.layers
NUM_ROWS, NUM_TRAINED = 29, 21


def rows(x, *, weights=False):
    """Return data with these inputs; neither number of rows is divisible by a batch of 8."""
    rng = np.random.default_rng(3)
    y = rng.integers(0, 3, NUM_ROWS)
    parts = (x, y, rng.uniform(0.1, 2, NUM_ROWS).astype("float32")) if weights else (x, y)
    train, validation = (
        keras.tree.map_structure(lambda a, s=s: a[s], parts)
        for s in (slice(NUM_TRAINED), slice(NUM_TRAINED, None))
    )
    return Data(train, validation)


def images(**others):
    rng = np.random.default_rng(0)
    return rows(rng.random((NUM_ROWS, 8, 8, 3), np.float32), **others)


def tokens():
    rng = np.random.default_rng(0)
    x = rng.integers(1, 50, (NUM_ROWS, 12)).astype("int32")
    x[::2, 7:] = 0
    return rows(x)


def images_and_numbers():
    rng = np.random.default_rng(0)
    pictures = rng.random((NUM_ROWS, 8, 8, 3), np.float32)
    return rows({"picture": pictures, "numbers": rng.random((NUM_ROWS, 4), np.float32)})


def pretrained(model, seed=7):
    """Freeze a model, with the same weights in each trial."""
    rng = np.random.default_rng(seed)
    for variable in model.variables:
        if len(variable.shape) > 1:
            variable.assign(rng.normal(0, 0.2, variable.shape))
    model.trainable = False
    return model


def backbone(dropout=0.0):
    """Return a small convolutional network."""
    x = image = keras.Input((8, 8, 3))
    for filters in (8, 16, 16):
        x = L.Conv2D(filters, 3, padding="same", activation="relu")(x)
        x = L.BatchNormalization()(x)
        x = L.Dropout(dropout)(x)
        x = L.MaxPooling2D()(x)
    return keras.Model(image, x, name="backbone")


def compiled(model, config, loss="sparse_categorical_crossentropy", **settings):
    # Adam's own epsilon makes whole steps of a gradient that is rounding errors alone, as that of
    # a bias before BatchNormalization: two ways to compute a batch's rows would not be comparable.
    optimizer = keras.optimizers.Adam(config.get("lr", 0.01), epsilon=1e-3)
    model.compile(optimizer, loss, **settings)
    return model


def head(features, config):
    """Return a classifier that draws random numbers."""
    hidden = L.Dense(6, activation="relu")(L.Dropout(config.get("rate", 0.3))(features))
    return L.Dense(3, activation="softmax")(hidden)


def nested(config):
    image = keras.Input((8, 8, 3))
    features = L.GlobalAveragePooling2D()(pretrained(backbone())(L.Rescaling(2.0)(image)))
    return compiled(keras.Model(image, head(features, config)), config, metrics=["accuracy"])


def inline(config):
    base = pretrained(backbone())
    features = L.GlobalAveragePooling2D()(base.output)
    return compiled(keras.Model(base.input, head(features, config)), config)


def last_layers_trained(config):
    base = pretrained(backbone())
    base.trainable = True
    for layer in base.layers[:-4]:
        layer.trainable = False
    features = L.GlobalAveragePooling2D()(base.output)
    return compiled(keras.Model(base.input, head(features, config)), config)


def without_input(config):
    parts = [L.Rescaling(2.0), pretrained(backbone()), L.Flatten()]
    return compiled(keras.Sequential([*parts, L.Dense(3, activation="softmax")]), config)


def masked(config):
    words = keras.Input((12,), dtype="int32")
    parts = [L.Embedding(50, 16, mask_zero=True), L.LSTM(16, return_sequences=True)]
    encoder = pretrained(keras.Sequential([L.Input((12,), dtype="int32"), *parts]))
    return compiled(keras.Model(words, head(L.LSTM(3)(encoder(words)), config)), config)


def two_inputs(config):
    picture, numbers = keras.Input((8, 8, 3), name="picture"), keras.Input((4,), name="numbers")
    features = L.GlobalAveragePooling2D()(pretrained(backbone())(picture))
    joined = L.Concatenate()([features, L.Dense(4)(numbers)])
    inputs = {"picture": picture, "numbers": numbers}
    return compiled(keras.Model(inputs, head(joined, config)), config)


def shared_twice(config):
    base = pretrained(backbone())
    picture = keras.Input((8, 8, 3))
    both = [L.GlobalAveragePooling2D()(base(each)) for each in (picture, picture[:, ::-1])]
    return compiled(keras.Model(picture, head(L.Concatenate()(both), config)), config)


def penalized(config):
    image = keras.Input((8, 8, 3))
    base = backbone()
    for layer in base.layers:
        if isinstance(layer, L.Conv2D):
            layer.kernel_regularizer = keras.regularizers.L2(config.get("penalty", 0.01))
    features = L.GlobalAveragePooling2D()(pretrained(base)(image))
    return compiled(keras.Model(image, head(features, config)), config)


def nothing_trained(config):
    image = keras.Input((8, 8, 3))
    model = pretrained(keras.Sequential([backbone(), L.Flatten(), L.Dense(3, "softmax")]))
    return compiled(keras.Model(image, model(image)), config)


SHARED = {
    "nothing trained": (nothing_trained, images),
    "nested": (nested, images),
    "without an input": (without_input, images),
    "inline": (inline, images),
    "last layers trained": (last_layers_trained, images),
    "masked": (masked, tokens),
    "two inputs": (two_inputs, images_and_numbers),
    "called twice": (shared_twice, images),
    "penalized": (penalized, images),
    "weighted rows": (nested, lambda: images(weights=True)),
}
"""Models whose frozen layers are skipped, and their data."""


def on_backbone(layer=None, base=backbone):
    """Return a model with further layers before or in its frozen ones."""

    def build(config):
        first = [layer()] if layer else []
        parts = [*first, pretrained(base()), L.GlobalAveragePooling2D()]
        model = keras.Sequential([L.Input((8, 8, 3)), *parts, L.Dense(3, activation="softmax")])
        return compiled(model, config)

    return build


class Custom(keras.layers.Layer):
    def call(self, x):
        return x * 2


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.base, self.pool = pretrained(backbone()), L.GlobalAveragePooling2D()
        self.top = L.Dense(3, activation="softmax")

    def call(self, x):
        return self.top(self.pool(self.base(x)))


class OwnLoss(keras.Model):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return super().compute_loss(x, y, y_pred, sample_weight, training) + keras.ops.mean(x)


def own_loss(config):
    base = pretrained(backbone())
    outputs = head(L.GlobalAveragePooling2D()(base.output), config)
    return compiled(OwnLoss(base.input, outputs), config)


def mixing_rows(config):
    image = keras.Input((8, 8, 3))
    features = L.GlobalAveragePooling2D()(pretrained(backbone())(image))
    mixed = features - keras.ops.mean(features, axis=0, keepdims=True)
    small = pretrained(keras.Sequential([L.Dense(2)]))(mixed)
    return compiled(keras.Model(image, L.Dense(3, activation="softmax")(small)), config)


def random_activation(config):
    def noisy(x):
        import tensorflow as tf

        return x + tf.random.normal(tf.shape(x))

    image = keras.Input((8, 8, 3))
    base = pretrained(keras.Sequential([L.Conv2D(16, 3), L.Conv2D(16, 3, activation=noisy)]))
    features = L.GlobalAveragePooling2D()(base(image))
    return compiled(keras.Model(image, L.Dense(3, activation="softmax")(features)), config)


def cheap(config):
    norm = L.Normalization(mean=0.5, variance=2.0)
    parts = [norm, L.Flatten(), L.Dense(8), L.Dense(3, activation="softmax")]
    return compiled(keras.Sequential([L.Input((8, 8, 3)), *parts]), config)


NOT_SHARED = {
    "dropout in a frozen model": (on_backbone(base=lambda: backbone(dropout=0.2)), "random"),
    "statistics": (
        on_backbone(lambda: L.BatchNormalization(center=False, scale=False)),
        "statistics",
    ),
    "lambda": (on_backbone(lambda: L.Lambda(lambda x: x * 2)), "lambda may keep state"),
    "custom layer": (on_backbone(Custom), "custom is a custom layer"),
    "penalty": (on_backbone(lambda: L.ActivityRegularization(0.1)), "adds to the loss"),
    "custom call": (lambda config: compiled(Subclassed(), config), "in custom code"),
    "custom loss": (own_loss, "replaces compute_loss"),
    "rows mixed": (mixing_rows, "other rows"),
    "random function": (random_activation, "which is not Keras' own"),
    "little saved": (cheap, "of an epoch's operations"),
}
"""Models whose frozen layers are not skipped, and a part of the reason."""
