"""The reuse contract, for everything that Keras has and for what was found to break it.

``make reuse-contract`` runs it as a whole: all arguments of all classes, each compared with
``fit``. Otherwise every eighth class has its turn, with one argument of six, and only what shares a
program is trained: the rest is traced anew, as in a fresh process.
"""

import gc
import os
import zlib
from pathlib import Path

import keras
import psutil
import pytest
from guards import guarded
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from reuse_cases import NOT_BUILT, subjects
from reuse_comparisons import compare_arguments, compare_subject, write_table
from reuse_findings import FINDINGS
from reuse_models import NUMBERS, stacked
from trials import Given, run

from tune_tf.training.core.loop import GraphLoop

pytestmark = pytest.mark.tf

WHOLE = os.environ.get("TUNE_TF_REUSE") == "whole"
CLASSES_IN_TURN = 1 if WHOLE else 8
ARGUMENTS_IN_TURN = 1 if WHOLE else 6

layers = keras.layers


def is_in_turn(name, number):
    """Return whether a name is among each so many; the same ones every time."""
    return zlib.crc32(name.encode()) % number == 0


SUBJECTS = [subject for subject in subjects() if is_in_turn(subject.name, CLASSES_IN_TURN)]
HOW = {"by_fit": WHOLE, "shared_only": not WHOLE}


@pytest.fixture(scope="module")
def found(worker_id):
    """What was found of each class; written as a table where the whole contract runs."""
    table = []
    yield table
    if WHOLE and table:
        path = Path("build", f"reuse-contract-{worker_id}.txt")
        path.parent.mkdir(exist_ok=True)
        path.write_text(write_table(table))


@pytest.fixture(scope="session")
def worker_id(request):
    """Name of this process among those that xdist runs."""
    return getattr(request.config, "workerinput", {}).get("workerid", "alone")


GUARDS = (
    "delta of Huber",
    "Normalization.adapt",
    "train_step reads the workload",
    "activation called like one of Keras'",
    "exclude_from_weight_decay",
    "trainable of a variable",
    "callback that freezes a layer",
    "LSTM with dropout",
    "stateful GRU, batches of 8",
    "MixUp",
    "closure",
    "carried number as text",
)
"""One for each kind of thing that a program may depend on."""


@pytest.mark.parametrize("name", guarded(FINDINGS, GUARDS))
def test_a_trial_is_that_of_a_fresh_process_whatever_it_depends_on(name, replicas_of):
    finding = FINDINGS[name]
    by_fit = finding.by_fit and (WHOLE or is_in_turn(name, 10))
    how = HOW | {"by_fit": by_fit, "shared_only": not (WHOLE or by_fit)}
    reuse = compare_subject(
        finding.workload, finding.configs, replicas=replicas_of(1), name=name, **how
    )

    assert reuse.errors == []
    assert reuse.refused == {}


UNVARIED = {
    "dtype": "a penalty of another type cannot be added to the loss",
    "fft_length": "none is both longer than the frames and short enough for the rows",
    "gptq_unpacked_column_size": "needs a model that is quantized",
    "fill_mode": "needs a resizing that leaves a border",
    "idf_weights": "needs as many as the words, and an output mode",
    "invert": "its output are words",
    "mask": "is a tensor, or a function of other masks",
    "mask_token": "needs to be in the words",
    "num_bins": "excludes the boundaries",
    "oov_token": "shows in inverted look-ups only",
    "output_mode": "excludes a length of the output",
    "output_shape": "is for other frameworks",
    "pad_to_max_tokens": "excludes a length of the output",
    "quantization_config": "needs a model that is quantized",
    "ragged": "its output is no tensor that a dense layer takes",
    "salt": "excludes a number of places for unknown words",
    "sparse": "its output is no tensor that a dense layer takes",
    "sparse_y_pred": "needs classes as predictions",
    "stateful": "needs a batch size in the input; a finding has one",
    "trainable": "some layers do not take it",
    "vocabulary_dtype": "only int64 is allowed",
    "weights": "only layers that are given some take it",
}
"""Arguments for which no other value trains in some classes."""


@pytest.mark.slow
@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_every_argument_of_a_class_is_that_of_the_trial(subject, found, replicas_of):
    def chosen(argument):
        return is_in_turn(f"{subject.name}.{argument}", ARGUMENTS_IN_TURN)

    reuse = compare_arguments(subject, chosen, replicas=replicas_of(1), **HOW)
    found.append(reuse)

    assert reuse.errors == []
    assert WHOLE or reuse.refused == {}  # of the whole, fit refuses the same
    assert set(reuse.unvaried) <= set(UNVARIED)


def test_classes_that_are_left_out_are_there():
    names = {name for name in NOT_BUILT if not hasattr(keras, name.split(".")[0])}

    assert names <= {"schedules.LearningRateSchedule"}
    assert len(subjects()) > 200


ACTIVATIONS = ["relu", "tanh", "gelu", "leaky_relu"]
PENALTIES = [keras.regularizers.L1, keras.regularizers.L2]
RATES = st.sampled_from([0.0, 0.1, 0.3])
LAYERS = {
    "dense": lambda a, b, c: layers.Dense(
        4, ACTIVATIONS[c % 4], kernel_regularizer=PENALTIES[c % 2](a)
    ),
    "dropout": lambda a, b, c: layers.Dropout(b),
    "noise": lambda a, b, c: layers.GaussianNoise(b),
    "norm": lambda a, b, c: layers.BatchNormalization(momentum=0.9 + a / 10),
    "layer_norm": lambda a, b, c: layers.LayerNormalization(epsilon=1e-3 + a),
    "leaky": lambda a, b, c: layers.LeakyReLU(b),
    "penalty": lambda a, b, c: layers.ActivityRegularization(l1=a, l2=b),
    "closure": lambda a, b, c: layers.Lambda(lambda x: x * (1 + a)),
}
OPTIMIZERS = [
    lambda a, b: keras.optimizers.SGD(0.1 + a, momentum=b),
    lambda a, b: keras.optimizers.AdamW(0.01 + a, weight_decay=b, clipnorm=1 + a),
    lambda a, b: keras.optimizers.RMSprop(
        keras.optimizers.schedules.ExponentialDecay(0.01, 4, 0.5 + a), momentum=b
    ),
]
LOSSES = [
    lambda a: keras.losses.Huber(delta=0.1 + a),
    lambda a: keras.losses.MeanSquaredError(),
    lambda a: lambda y, p: keras.ops.mean(keras.ops.abs(y - p) ** (1 + a)),
]
NUMBERS_OF_A_TRIAL = st.tuples(RATES, RATES, st.integers(0, 3))
"""A trial's numbers for one layer; those of the same model have the same structure or not."""


@st.composite
def models(draw):
    """Return a stack of names, and trials: numbers for each layer, optimizer and loss."""
    names = draw(st.lists(st.sampled_from(sorted(LAYERS)), min_size=1, max_size=3))
    one = st.tuples(
        st.tuples(*(NUMBERS_OF_A_TRIAL for _ in names)),
        st.tuples(st.sampled_from([0, 1, 2]), RATES, RATES),
        st.tuples(st.sampled_from([0, 1, 2]), RATES),
    )
    first = draw(one)
    # The second differs in one part only, as neighbours in a search do; the third in any.
    part, other = draw(st.integers(0, 2)), draw(one)
    second = tuple(other[i] if i == part else first[i] for i in range(3))
    return names, [first, second, draw(one)]


def random_model(config):
    of_layers, (kind, a, b), (loss, c) = config["trial"]
    made = [
        LAYERS[name](*numbers) for name, numbers in zip(config["names"], of_layers, strict=True)
    ]
    return stacked(*made, optimizer=OPTIMIZERS[kind](a, b), loss=LOSSES[loss](c))


@settings(
    max_examples=100 if WHOLE else 6,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(models())
def test_random_models_train_as_in_a_fresh_process(model):
    names, trials = model
    configs = [{"names": tuple(names), "trial": trial} for trial in trials]
    found = compare_subject(Given(random_model, NUMBERS), configs, name="random models", **HOW)

    assert found.errors == []


def footprint():
    """Return this process' resident megabytes, threads and descriptors."""
    gc.collect()
    process = psutil.Process()
    return process.memory_info().rss / 1e6, process.num_threads(), process.num_fds()


def soaked(loop, workload, configs, num_trials):
    """Run trials; return by how much the footprint grew a trial, after a quarter of them."""
    for number in range(num_trials):
        if number == num_trials // 4:
            before = footprint()
        run(loop, workload, configs[number % len(configs)], seed=number, epochs=2)
    rest = num_trials - num_trials // 4
    grown = [now - then for now, then in zip(footprint(), before, strict=True)]
    return grown[0] / rest, grown[1], grown[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    "widths", [[8], [4, 5, 6, 7, 8]], ids=["equal structures", "recurring structures"]
)
def test_many_trials_of_a_process_leave_nothing(widths, replicas_of):
    def build(config):
        return stacked(
            layers.Dense(config["width"], "relu"),
            layers.Dropout(config["rate"]),
            loss=keras.losses.Huber(),
            metrics=["mae"],
        )

    workload = Given(build, NUMBERS)
    configs = [{"width": width, "rate": rate} for rate in (0.1, 0.2, 0.3) for width in widths]
    loop = GraphLoop(replicas_of(1))
    megabytes, threads, descriptors = soaked(loop, workload, configs, 300 if WHOLE else 80)

    assert loop.num_programs == len(widths)
    assert megabytes < 0.1, f"{megabytes:.3f} MB a trial"
    assert threads <= 2
    assert descriptors <= 2
