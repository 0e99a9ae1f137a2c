"""What a model can depend on without saying so: one entry a way in which reuse could go wrong."""

import collections
import functools
import random
import types
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from reuse_layers import (
    AsText,
    AsTextByC,
    Does,
    DrawnRate,
    Draws,
    Freeze,
    Holds,
    IsClose,
    Looked,
    Masked,
    Missing,
    Noisy,
    OwnConstraint,
    OwnLoss,
    OwnMetric,
    OwnOptimizer,
    OwnRegularizer,
    OwnSchedule,
    Patch,
    Slots,
    scaled_error,
    scaling,
    set_class,
    set_global,
    set_item,
    table,
    with_attribute,
)
from reuse_models import (
    EVEN,
    IDS,
    IMAGES,
    NAMED,
    NUMBERS,
    ONE_HOT,
    SEQUENCES,
    TWO_TARGETS,
    WORDS,
    OfRows,
    StepByChance,
    StepOfInstance,
    StepOfModel,
    StepOfWorkload,
    StepWithCount,
    X,
    adapted,
    adding,
    attentive,
    begun,
    by_hand,
    classifier,
    draw,
    hiding,
    masked,
    masked_words,
    multi,
    named_like,
    named_parts,
    nested,
    of_policy,
    patched,
    patched_layer,
    recurrent,
    shared_layer,
    sharing,
    stacked,
    stacked_later,
    stateful,
    undecayed,
    unwritable,
    weighed_call,
    weighed_loss,
    weighed_step,
    with_variable,
)
from reuse_values import names_of_functions
from trials import Given

from tune_tf.workload import Workload

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


def of(build, *configs, data=NUMBERS, by_fit=True, **given):
    """Return a finding of a builder and the values of its config, as ``value``."""
    return Finding(
        Given(lambda config: build(config["value"]), data, **given),
        [{"value": value} for value in configs],
        by_fit,
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
