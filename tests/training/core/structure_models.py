"""Models by what a program's key tells apart: factories of builders, from a config to a model."""

import keras

layers, optimizers, losses = keras.layers, keras.optimizers, keras.losses


def mlp(
    width=4,
    activation="relu",
    optimizer=lambda: optimizers.Adam(0.01),
    loss=lambda: losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=lambda: ["accuracy"],
    dropout=0.2,
    extra=list,
    dtype=None,
    inputs=6,
):
    """Return a builder of a classifier; everything that is an object is given as a factory."""

    def build(config):
        model = keras.Sequential(
            [
                keras.Input((inputs,)),
                layers.Dense(width, activation=activation, dtype=dtype),
                layers.Dropout(dropout),
                *extra(),
                layers.Dense(3),
            ]
        )
        model.compile(optimizer(), loss(), metrics=metrics())
        return model

    return build


def sgd(**arguments):
    return lambda: optimizers.SGD(**({"learning_rate": 0.1} | arguments))


def adam(**arguments):
    return lambda: optimizers.Adam(**({"learning_rate": 0.1} | arguments))


class Hidden(keras.Model):
    """A model that Keras cannot serialise, with a layer and whatever else it is given."""

    def __init__(self, made=None, **attributes):
        super().__init__()
        self.made = made
        self.out = layers.Dense(3)
        for name, value in attributes.items():
            setattr(self, name, value)

    def call(self, x):
        return self.out(x)

    def get_config(self):
        raise NotImplementedError


def subclassed(optimizer=None, **attributes):
    def build(config):
        model = Hidden(**attributes)
        model.compile((optimizer or sgd())(), "mse")
        return model

    return build
