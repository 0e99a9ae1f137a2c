"""Workloads and callbacks as users write them, for rows of the contract."""

import functools
import itertools
import random
from collections import Counter, defaultdict, deque

import keras
import numpy as np
import tensorflow as tf
from contract_row import CLASSES, NUMBERS, Data, draw, layers, optimizers, stacked
from trials import Given

ops = keras.ops


class StepOfWorkload(Given):
    """Weighs the loss by an attribute of the workload, which ``build_model`` sets."""

    def __init__(self):
        super().__init__(None, NUMBERS)

    def build_model(self, config):
        self.push = config["value"]
        return stacked(layers.Dense(4, "relu"))

    def weight(self):
        return self.push

    def train_step(self, model, batch):
        x, y = batch
        with tf.GradientTape() as tape:
            loss = self.weight() * model.compute_loss(x, y, model(x, training=True))
        variables = model.trainable_variables
        model.optimizer.apply(tape.gradient(loss, variables), variables)
        for metric in model.metrics:
            # A part of an uneven batch would weigh as much as the other.
            of_loss = metric.name == "loss"
            metric.update_state(*((loss, ops.shape(x)[0]) if of_loss else (y, y)))
        return model.get_metrics_result()


class StepWithItsOwnLogs(StepOfWorkload):
    """Returns the mean of its rows in place of the metrics."""

    def train_step(self, model, batch):
        super().train_step(model, batch)
        x, y = batch
        mean = ops.mean(ops.square(y - model(x, training=False)))
        return {"loss": mean, "own": 2.0 * mean}


class StepWithCount(StepOfWorkload):
    """Makes a variable at the first call."""

    count = None

    def weight(self):
        if self.count is None:
            self.count = tf.Variable(0.0, trainable=False)
        return self.push * self.count.assign_add(1.0)


class StepByChance(StepOfWorkload):
    """The same with a weight of Keras' own generator."""

    def weight(self):
        return self.push * keras.random.uniform(())


class Anneals(Given):
    """A loss reads a variable that a callback moves; both are made in ``build_model``."""

    def __init__(self):
        super().__init__(None, NUMBERS)

    def build_model(self, config):
        self.level = level = tf.Variable(1.0, trainable=False)
        return stacked(layers.Dense(4), loss=lambda y, p: level * ops.mean(ops.square(y - p), -1))

    def callbacks(self, config):
        def anneal(epoch, logs):
            self.level.assign(self.level * config["value"])

        return [keras.callbacks.LambdaCallback(on_epoch_end=anneal)]


class KeepsParts(Given):
    """Model and optimizer are kept for a callback, which halves or doubles their numbers."""

    def __init__(self):
        super().__init__(None, NUMBERS)

    def build_model(self, config):
        self.optimizer = optimizers.SGD(0.05, momentum=0.9)
        self.model = stacked(layers.Dense(4), optimizer=self.optimizer)
        return self.model

    def callbacks(self, config):
        def scale(epoch, logs):
            self.optimizer.learning_rate.assign(self.optimizer.learning_rate * config["value"])
            self.model.layers[0].kernel.assign(self.model.layers[0].kernel * config["value"])

        return [keras.callbacks.LambdaCallback(on_epoch_end=scale)]


class KeepsState(Given):
    """What ``build_model`` reads is kept by the workload, and each call moves it on."""

    def __init__(self, kind):
        super().__init__(None, NUMBERS)
        self.kind, self.cycle = kind, itertools.cycle([1.0, 2.0, 3.0])

    @functools.lru_cache  # noqa: B019  as users write it
    def cached(self, rate):
        return random.random() + rate

    def number(self, rate):
        return next(self.cycle) if self.kind == "cycle" else self.cached(rate)

    def build_model(self, config):
        return stacked(
            layers.Dense(4),
            optimizer=optimizers.SGD(0.1 * config["value"] * self.number(config["value"])),
        )


class KeepsLayers(Given):
    """Layers that the workload keeps, of which a config says which are trained."""

    def __init__(self):
        super().__init__(None, NUMBERS)
        self.hidden = None

    def build_model(self, config):
        if self.hidden is None:
            self.hidden = [layers.Dense(4, "relu"), layers.Dense(4, "tanh")]
        for number, layer in enumerate(self.hidden):
            layer.trainable = number != config["value"]
        return stacked(*self.hidden)


class OfRows(Given):
    """A workload whose class weights or sample weights are in the config."""

    def __init__(self):
        super().__init__(None, CLASSES)

    def load_data(self, config):
        if "weights" in config:
            x, y = CLASSES.train
            return Data(train=(x, y, np.linspace(*config["weights"], len(y)).astype("float32")))
        return draw(kind="class", class_weight=config["class_weight"])

    def build_model(self, config):
        return stacked(
            layers.Dense(4, "relu"),
            data=CLASSES,
            out=layers.Dense(3, "softmax"),
            loss="sparse_categorical_crossentropy",
            metrics=["accuracy"],
            weighted_metrics=["accuracy"],
        )


class Sets(keras.callbacks.Callback):
    """Sets an attribute of the optimizer or of a layer when training begins."""

    def __init__(self, name, value, layer=None):
        super().__init__()
        self.name, self.value, self.layer = name, value, layer

    def on_train_begin(self, logs=None):
        owner = self.model.optimizer if self.layer is None else self.model.layers[self.layer]
        setattr(owner, self.name, self.value)


class DrawnRate(keras.callbacks.Callback):
    """Draws a learning rate by NumPy's and Python's global generators."""

    def on_epoch_end(self, epoch, logs=None):
        drawn = np.random.uniform() + random.random()  # noqa: NPY002
        self.model.optimizer.learning_rate.assign(0.01 * (1 + drawn))


class Remembering(keras.callbacks.Callback):
    """Has state of every kind, changed in place and anew, and reports what follows from it."""

    def __init__(self):
        super().__init__()
        self.seen = []
        self.by_kind = {"a": {1: (0.5, None)}, (1, 2): {"x", "y"}}
        self.counts = np.zeros(3, "int64")
        self.best = np.float32(np.inf)
        self._lately = deque(maxlen=2)
        self.told = defaultdict(list)
        self.number = Counter()

    def on_epoch_end(self, epoch, logs=None):
        self.seen.append(logs["loss"])
        self.by_kind["a"][epoch] = (logs["loss"], True)
        self.counts[epoch % 3] += 1
        self.best = np.float32(min(self.best, logs["loss"]))
        self._lately.append(epoch)
        self.told[epoch % 2].append(epoch)
        self.number["epochs"] += 1
        self.weights = [w * 0.5 for w in self.model.get_weights()]
        logs["remembered"] = (
            float(sum(self.seen) + self.counts @ [1, 10, 100] + self.best + sum(self._lately))
            + sum(map(float, self.told[0]))
            + self.number["epochs"]
            + abs(self.weights[0]).sum()
        )
