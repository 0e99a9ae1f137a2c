"""Batches of a ``tf.data.Dataset``: the numbers of ``fit``."""

import keras
import pytest
import tensorflow as tf
from guards import guarded, slow
from streams import Noisy, classifier, without_dropout
from trials import SEED, Given, bits, dense_model, draw, furthest, run_fresh

from tune_tf.data import rows_of
from tune_tf.errors import WorkloadError
from tune_tf.parallelism import Mirrored
from tune_tf.training.build import build_model
from tune_tf.training.input.device_rows import place_rows
from tune_tf.training.loop import GraphLoop
from tune_tf.training.seeds import seeded_generators
from tune_tf.workload import Data

pytestmark = pytest.mark.tf
layers = keras.layers
ROWS = draw(37, 19)


class _Anew:
    def load_data(self, config):
        return self._data()


class Loaded(_Anew, Given):
    """A workload whose data are made anew by each load."""


class LoadedNoisy(_Anew, Noisy):
    """One that adds noise to each row."""


def dataset(part, size=8):
    return tf.data.Dataset.from_tensor_slices(part).batch(size)


def batched(rows=ROWS, **data):
    return lambda: Data(dataset(rows.train), dataset(rows.validation), **data)


def placed(loop, workload, seed):
    """Return the rows of a trial, as a process of trials places them."""

    def load(seed):
        with seeded_generators(seed):
            return rows_of(workload.load_data({}))

    return place_rows(load(seed), loop._replicas, seed, load)


def begin(loop, workload, seed=SEED, config=None):
    """Start a trial in a loop, as a process of trials does it."""
    loop.start(workload, config or {}, placed(loop, workload, seed), seed)
    return loop


def run(loop, workload, seed=SEED, epochs=3):
    """Run a trial; return metrics by epoch and the values of all variables."""
    begin(loop, workload, seed)
    history = [loop.epoch() for _ in range(epochs)]
    model = loop.trial.program.model
    values = [v.numpy() for v in (*model.variables, *model.optimizer.variables)]
    loop.finish()
    return history, values


def run_dataset(build, data, replicas, kind=Loaded, epochs=3, **spread):
    workload = kind(build, data)
    loop = GraphLoop(replicas, Mirrored(replicas.num, **spread))
    return run(loop, workload, epochs=epochs)


def run_fit(build, data, replicas, epochs=3):
    """Train the same model by ``fit`` on the same data sets."""
    workload = Loaded(build, data)
    model = build_model(workload, {}, replicas, SEED)
    with seeded_generators(SEED):
        sets = data()
    if model.built:
        model.optimizer.build(model.trainable_variables)  # `fit` builds them without their values
    logs = model.fit(
        sets.train,
        validation_data=sets.validation,
        epochs=epochs,
        steps_per_epoch=sets.steps_per_epoch,
        validation_steps=sets.validation_steps,
        class_weight=sets.class_weight,
        shuffle=False,
        verbose=0,
    ).history
    history = [{name: values[i] for name, values in logs.items()} for i in range(epochs)]
    return history, [v.numpy() for v in (*model.variables, *model.optimizer.variables)]


def dict_model(config):
    """Build a model of two named inputs and two outputs."""
    inputs = {"a": keras.Input((4,), name="a"), "b": keras.Input((2,), name="b")}
    joined = layers.Concatenate()([inputs["a"], inputs["b"]])
    outputs = {
        "label": layers.Dense(3, name="label")(joined),
        "sum": layers.Dense(1, name="sum")(joined),
    }
    model = keras.Model(inputs, outputs)
    label = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", {"label": label, "sum": "mse"}, metrics={"sum": "mae"})
    return model


def named(x, y):
    return {"a": x[:4], "b": x[4:]}, {"label": y, "sum": tf.reduce_sum(x)}


def sequence_model(config):
    model = keras.Sequential(
        [layers.Embedding(9, 2), layers.GlobalAveragePooling1D(), layers.Dense(3)]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1), loss)
    return model


def sparse_model(config):
    model = keras.Sequential([keras.Input((6,), sparse=True), layers.Dense(3)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1), loss)
    return model


def only_x_model(config):
    inputs = keras.Input((6,))
    model = keras.Model(inputs, layers.ActivityRegularization(l2=0.1)(layers.Dense(3)(inputs)))
    model.compile(keras.optimizers.SGD(0.1))
    return model


def generated():
    yield from zip(*ROWS.train, strict=True)


def lengths(part):
    """Return batches that are as wide as their longest row."""
    rows = tf.data.Dataset.from_tensor_slices(part[1])
    return rows.map(lambda y: (tf.ones([y + 1], tf.int32) * y, y)).padded_batch(8)


LOCAL = {
    "batched": (classifier, batched()),
    "unbatched": (
        classifier,
        lambda: Data(tf.data.Dataset.from_tensor_slices(ROWS.train), dataset(ROWS.validation)),
    ),
    "of fixed shape": (
        classifier,
        lambda: Data(
            tf.data.Dataset.from_tensor_slices(ROWS.train).batch(8, drop_remainder=True),
            dataset(ROWS.validation),
        ),
    ),
    "of unknown length": (
        classifier,
        lambda: Data(
            tf.data.Dataset.from_generator(
                generated,
                output_signature=(tf.TensorSpec([6], "float32"), tf.TensorSpec([], "int32")),
            ).batch(8),
            dataset(ROWS.validation),
        ),
    ),
    "endless": (
        classifier,
        lambda: Data(
            dataset(ROWS.train).repeat(),
            dataset(ROWS.validation).repeat(),
            steps_per_epoch=3,
            validation_steps=2,
        ),
    ),
    "in parts": (
        classifier,
        lambda: Data(dataset(ROWS.train), dataset(ROWS.validation), steps_per_epoch=2),
    ),
    "with class weights": (classifier, batched(class_weight={0: 2.0, 1: 0.5, 2: 3.0})),
    "named": (
        dict_model,
        lambda: Data(
            *(
                tf.data.Dataset.from_tensor_slices(part).map(named).batch(8)
                for part in (ROWS.train, ROWS.validation)
            )
        ),
    ),
    "of other lengths": (
        sequence_model,
        lambda: Data(lengths(ROWS.train), lengths(ROWS.validation)),
    ),
    "input only": (
        only_x_model,
        lambda: Data(dataset(ROWS.train[0]), dataset(ROWS.validation[0])),
    ),
    "sparse": (
        sparse_model,
        lambda: Data(
            *(
                dataset(part).map(lambda x, y: (tf.sparse.from_dense(x), y))
                for part in (ROWS.train, ROWS.validation)
            )
        ),
    ),
    "arrays to train on": (None, lambda: Data(ROWS.train, dataset(ROWS.validation))),
}


# `fit` takes rows without batches for batches, and counts one more update at an unknown end.
OF_THE_SAME_ROWS = {"unbatched", "of unknown length"}


GUARDS = ["unbatched", "endless", "with class weights", "named"]


@pytest.mark.parametrize("name", guarded(sorted(LOCAL.keys() - {"arrays to train on"}), GUARDS))
def test_a_data_set_trains_to_the_numbers_of_fit(replicas_of, name):
    build, data = LOCAL[name]
    ours = run_dataset(build, data, replicas_of(1))
    of_fit = run_fit(build, batched() if name in OF_THE_SAME_ROWS else data, replicas_of(1))

    assert furthest(ours, of_fit) < 1e-6


def test_a_data_set_may_validate_a_model_trained_on_arrays(replicas_of):
    data = LOCAL["arrays to train on"][1]

    assert (
        furthest(
            run_dataset(classifier, data, replicas_of(1)),
            run_fresh(Given(classifier, ROWS), replicas_of(1)),
        )
        < 1e-6
    )


@pytest.mark.parametrize(
    "name", ["batched", *map(slow, ("of other lengths", "sparse", "of fixed shape"))]
)
def test_replicas_share_the_rows_of_each_batch(replicas_of, name):
    build, data = LOCAL[name]
    build = without_dropout if build is classifier else build

    assert (
        furthest(run_dataset(build, data, replicas_of(2)), run_dataset(build, data, replicas_of(1)))
        < 1e-5
    )


@pytest.mark.parametrize("rest", [1, slow(2)])
def test_a_last_batch_with_fewer_rows_than_replicas_is_exact(replicas_of, rest):
    rows = draw(8 * 2 + rest, 8 + rest)

    def data():
        return batched(rows)()

    three = run_dataset(without_dropout, data, replicas_of(3))

    assert furthest(three, run_dataset(without_dropout, data, replicas_of(1))) < 1e-5


def test_per_example_transforms_the_rows_of_batches(replicas_of):
    noisy = Noisy(classifier, ROWS)
    noisy.shuffle = lambda config: False
    ours = run_dataset(classifier, batched(), replicas_of(1), LoadedNoisy)

    assert furthest(ours, run_fresh(noisy, replicas_of(1))) < 1e-6


def shuffled():
    noise = tf.data.Dataset.from_tensor_slices(ROWS.train).shuffle(99)
    noise = noise.map(lambda x, y: (x + tf.random.normal([6]), y))
    return Data(noise.batch(8), dataset(ROWS.validation))


def shuffled_only():
    train = tf.data.Dataset.from_tensor_slices(ROWS.train).shuffle(99)
    return Data(train.batch(8), dataset(ROWS.validation))


def shuffled_unknown():
    return Data(shuffled_only().train.filter(lambda x, y: True), dataset(ROWS.validation))


@pytest.mark.parametrize("data", [shuffled_only, shuffled_unknown])
def test_rows_are_shuffled_as_by_fit(replicas_of, data):
    ours = run_dataset(dense_model, data, replicas_of(1))

    of_fit = run_fit(dense_model, data, replicas_of(1))

    for one, other in zip(ours[0], of_fit[0], strict=True):
        assert one == pytest.approx(other, abs=1e-6)


ORDERS = [shuffled, LOCAL["endless"][1], slow(LOCAL["in parts"][1])]


@pytest.mark.parametrize("data", ORDERS)
def test_a_second_trial_reads_what_a_fresh_process_would_read(replicas_of, data):
    workload = Loaded(classifier, data)
    loop = GraphLoop(replicas_of(1))
    rows = placed(loop, workload, SEED + 1)
    for seed in (SEED + 1, SEED):  # the second trial in the data of the first
        loop.start(workload, {}, rows, seed)
        history = [loop.epoch() for _ in range(3)]
        model = loop.trial.program.model
        values = [v.numpy() for v in (*model.variables, *model.optimizer.variables)]
        loop.finish()

    assert bits((history, values)) == bits(run_dataset(classifier, data, replicas_of(1)))
    assert loop.num_programs == 1


@pytest.mark.parametrize("data", ORDERS)
def test_a_restored_trial_reads_on_where_it_stopped(replicas_of, data):
    workload = Loaded(classifier, data)
    whole = begin(GraphLoop(replicas_of(1)), workload)
    [whole.epoch() for _ in range(2)]
    checkpoint = whole.state()
    expected = [whole.epoch() for _ in range(2)]
    resumed = begin(GraphLoop(replicas_of(1)), workload, seed=SEED + 9)
    resumed.restore(checkpoint)

    assert [resumed.epoch() for _ in range(2)] == expected
    whole.restore(checkpoint)  # back in the same process
    assert [whole.epoch() for _ in range(2)] == expected


def test_a_model_in_stages_takes_batches_of_fixed_shape(loop_on_grid, replicas_of):
    data = LOCAL["of fixed shape"][1]
    validation = tf.data.Dataset.from_tensor_slices(ROWS.validation).batch(8, drop_remainder=True)

    def fixed():
        return Data(data().train, validation)

    workload = Loaded(without_dropout, fixed)
    staged, _ = run(loop_on_grid(workload, 1, 2, 2), workload)
    whole, _ = run_dataset(without_dropout, fixed, replicas_of(1))

    for ours, expected in zip(staged, whole, strict=True):
        assert ours == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (lambda: Data(dataset(ROWS.train).repeat()), r"never ends.*steps_per_epoch=100"),
        (
            lambda: Data(dataset(ROWS.train), dataset(ROWS.validation).repeat()),
            r"Data.validation never ends.*validation_steps=100",
        ),
        (lambda: Data(keras.utils.PyDataset()), r'PyDataset, whose batches .*: use loop="fit"'),
        (lambda: Data(ROWS.train, steps_per_epoch=3), r"steps_per_epoch counts batches"),
        (lambda: Data(dataset(ROWS.train), steps_per_epoch=0), r"at least 1, not 0"),
        (lambda: Data(generated()), "from_generator for a generator"),
        (lambda: Data(dataset(ROWS.train).take(0)), r"Data.train is empty"),
        (
            lambda: Data(LOCAL["of unknown length"][1]().train, steps_per_epoch=9),
            r"ended after 5 of 9 batches.*\.repeat\(\)",
        ),
        (
            lambda: Data(
                dataset((ROWS.train[0], ROWS.train[1], ROWS.train[1])), class_weight={0: 2}
            ),
            r"class_weight needs batches \(x, y\)",
        ),
    ],
)
def test_data_sets_that_cannot_be_trained_on_are_refused(replicas_of, data, text):
    with pytest.raises(WorkloadError, match=text):
        run_dataset(classifier, data, replicas_of(1), epochs=1)


def with_batch_norm(config):
    model = keras.Sequential([keras.Input((6,)), layers.BatchNormalization(), layers.Dense(3)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1), loss)
    return model


@pytest.mark.parametrize("fixed", [False, slow(True)])
def test_a_batch_norm_without_rows_is_refused_before_it_is_not_a_number(replicas_of, fixed):
    rows = draw(10, 8)
    train = tf.data.Dataset.from_tensor_slices(rows.train)
    train = train.batch(2, drop_remainder=True) if fixed else train.batch(4)

    with pytest.raises((WorkloadError, tf.errors.InvalidArgumentError), match="a row in each"):
        run_dataset(with_batch_norm, lambda: Data(train), replicas_of(3), epochs=1)


def test_batches_of_unknown_size_are_refused_by_stages(loop_on_grid):
    workload = Loaded(without_dropout, batched())
    with pytest.raises(WorkloadError, match="drop_remainder=True"):
        run(loop_on_grid(workload, 1, 2, 1), workload, epochs=1)
