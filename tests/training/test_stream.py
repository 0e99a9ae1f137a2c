"""Rows of a pipeline: the numbers of arrays, read while a trial trains."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from trials import ByTape, Given, begin, bits, draw, furthest, run, run_fresh

from tune_tf.data import Pipeline, rows_of
from tune_tf.errors import WorkloadError
from tune_tf.training.devices import Devices
from tune_tf.training.loop import GraphLoop
from tune_tf.training.placed import place
from tune_tf.training.replicas import Replicas
from tune_tf.training.stream import Stream, first_rows_of
from tune_tf.workload import Data

pytestmark = pytest.mark.tf
layers = keras.layers


def classifier(config):
    """Return a small model with layers that draw and that count."""
    model = keras.Sequential(
        [
            keras.Input((6,)),
            layers.Dense(4),
            layers.Dropout(config.get("rate", 0.1)),
            layers.Dense(3),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(clipnorm=1.0), loss, metrics=["accuracy"])
    return model


def without_dropout(config):
    return classifier({"rate": 0.0})


def as_it_is(*row):
    return row


def streamed(data, **settings):
    """Return the same rows as pipelines."""
    train, validation = (
        part and Pipeline(part, **settings) for part in (data.train, data.validation)
    )
    return Data(train=train, validation=validation)


def numbers_of(stream, size, *, seed=0, epoch=0, shuffled=True):
    """Return the numbers of an epoch's rows, by batch."""
    batches = stream.batches(size, seed=seed, epoch=epoch, shuffled=shuffled)
    return [numbers.numpy().tolist() for numbers, _ in batches]


@pytest.mark.parametrize(
    ("data", "mapping", "num"),
    [
        pytest.param(draw(37, 19), None, 1, id="shorter last batch"),
        pytest.param(draw(37, 19), as_it_is, 2, id="shorter last batch, mapped, two replicas"),
        pytest.param(draw(32, 16, weights=True), as_it_is, 1, id="weights, mapped"),
        pytest.param(draw(32, 16, weights=True), None, 3, id="weights, three replicas"),
    ],
)
def test_a_pipeline_trains_to_the_numbers_of_arrays(replicas_of, data, mapping, num):
    build = classifier if num == 1 else without_dropout
    resident = run_fresh(Given(build, data), replicas_of(num))
    of_pipeline = run_fresh(Given(build, streamed(data, map=mapping)), replicas_of(num))

    assert furthest(of_pipeline, resident) < 1e-6


def test_only_the_training_rows_may_come_from_a_pipeline(replicas_of):
    data = draw(37, 19)
    mixed = Data(train=Pipeline(data.train), validation=data.validation)

    assert bits(run_fresh(Given(classifier, mixed), replicas_of(1))) == bits(
        run_fresh(Given(classifier, data), replicas_of(1))
    )


@pytest.mark.parametrize(
    ("memory_bytes", "streamed_parts"),
    [(None, []), (4000, []), (1500, ["train"]), (700, ["train", "validation"])],
    ids=["a CPU", "room for all", "room for validation rows", "no room"],
)
def test_arrays_that_a_device_has_no_room_for_are_streamed(memory_bytes, streamed_parts):
    data = draw(37, 19)  # 37 and 19 rows of 6 floats and a label, 28 or 32 bytes each
    small = Replicas(Devices(("CPU:0",), memory_bytes))
    placed = place(rows_of(data), small)
    parts = {"train": placed.train, "validation": placed.validation}

    assert [name for name, part in parts.items() if isinstance(part, Stream)] == streamed_parts
    assert (
        furthest(
            run_fresh(Given(classifier, data), small),
            run_fresh(Given(classifier, data), Replicas(Devices(("CPU:0",)))),
        )
        < 1e-6
    )


@pytest.mark.parametrize("num", [1, 2])
def test_a_train_step_of_its_own_gets_the_rows_too(replicas_of, num):
    data = draw(37, 19)
    resident = run_fresh(ByTape(without_dropout, data), replicas_of(num))

    assert (
        furthest(run_fresh(ByTape(without_dropout, streamed(data)), replicas_of(num)), resident)
        < 1e-6
    )


def test_stages_of_a_model_get_the_rows_too(replicas_of, loop_on_grid):
    data = draw(40, 19)
    whole = run_fresh(Given(without_dropout, data), replicas_of(1))
    workload = Given(without_dropout, streamed(data))

    assert furthest(run(loop_on_grid(workload, 2, 2, 2), workload), whole) < 1e-5


class Noisy(Given):
    """Adds noise of its seed to each training row."""

    def per_example(self, config, *, training):
        def noise(row, seed):
            x, y = row
            return x + tf.random.stateless_normal([6], seed), y

        return noise if training else None


def test_what_is_computed_of_a_row_has_the_same_seeds(replicas_of):
    data = draw(37, 19)
    resident = run_fresh(Noisy(classifier, data), replicas_of(1))

    assert furthest(run_fresh(Noisy(classifier, streamed(data)), replicas_of(1)), resident) < 1e-6


def noisy(row, seed):
    """Return a training row with noise of its seed."""
    x, y, *weight = row
    return x + tf.random.stateless_normal([6], seed), y, *weight


@pytest.mark.parametrize("num", [1, 2])
@pytest.mark.parametrize("settings", [{}, {"map": as_it_is}], ids=["plain", "mapped"])
def test_rows_are_augmented_as_where_the_model_is(replicas_of, settings, num):
    data = draw(37, 19)
    ahead = Data(train=Pipeline(data.train, augment=noisy, **settings), validation=data.validation)
    on_device = run_fresh(Noisy(without_dropout, data), replicas_of(num))

    assert furthest(run_fresh(Given(without_dropout, ahead), replicas_of(num)), on_device) < 1e-5


def test_rows_of_a_cache_are_augmented_anew_in_every_epoch():
    stream = Stream(Pipeline(draw(20).train, cache="memory", augment=noisy), "train")
    first, second = (
        {int(n[0]): row for n, (row, _) in stream.batches(1, seed=1, epoch=epoch, shuffled=True)}
        for epoch in (0, 1)
    )

    assert sorted(first) == sorted(second) == [*range(20)]
    assert all(np.abs(first[number] - second[number]).max() > 0 for number in first)


def test_the_form_that_augment_gives_is_what_a_model_is_built_by(replicas_of):
    def cropped(row, seed):
        return row[0][:3], row[1]

    def smaller(config):
        model = keras.Sequential([layers.Dense(3)])
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return model

    workload = Given(smaller, Data(train=Pipeline(draw(20).train, augment=cropped)))
    loop = begin(GraphLoop(workload, replicas_of(1)), workload)
    loop.epoch()

    assert loop._current.program.model.layers[0].kernel.shape == (3, 3)


@pytest.mark.parametrize(
    ("augment", "name", "message"),
    [
        (lambda row, seed: row[0], "train", r"augment of Data\.train must return a row"),
        (
            lambda row, seed: (row[0] + tf.random.uniform([6]), row[1]),
            "train",
            "uses RandomUniform.*stateless",
        ),
        (noisy, "validation", r"Data\.validation has augment.*leave augment out"),
    ],
    ids=["no row", "a state of its own", "validation"],
)
def test_an_augment_that_cannot_be_is_refused(augment, name, message):
    with pytest.raises(WorkloadError, match=message):
        Stream(Pipeline(draw(20).train, augment=augment), name)


def of_worker(rank, num):
    """Return the part of a batch that one of several processes reads."""
    from tune_tf.training.row_weights import split

    return lambda count: (0, count) if count < num else split(count, rank, num)


@pytest.mark.parametrize("settings", [{}, {"map": as_it_is}, {"cache": "memory"}])
@pytest.mark.parametrize(("num_rows", "size"), [(36, 12), (37, 12), (41, 9), (10, 4), (5, 5)])
@pytest.mark.parametrize("num", [1, 2, 3])
def test_processes_read_their_parts_of_each_batch(settings, num_rows, size, num):
    def batches(window):
        stream = Stream(Pipeline(draw(num_rows).train, **settings), "train", window)
        return [
            (numbers.numpy().tolist(), rows.numpy())
            for numbers, (rows, _) in stream.batches(size, seed=1, epoch=1, shuffled=True)
        ]

    parts = [batches(of_worker(rank, num)) for rank in range(num)]
    for number, (numbers, rows) in enumerate(batches(lambda count: (0, count))):
        of_batch = [part[number] for part in parts]
        if len(numbers) < num:
            assert all(part[0] == numbers for part in of_batch)
        else:
            assert sum((part[0] for part in of_batch), []) == numbers  # noqa: RUF017  a few
            np.testing.assert_array_equal(np.concatenate([part[1] for part in of_batch]), rows)


def test_a_process_maps_its_own_rows_only():
    count = tf.Variable(0)

    def counted(x, y):
        count.assign_add(1)
        return x, y

    stream = Stream(Pipeline(draw(40).train, counted), "train", of_worker(1, 2))
    looked_at = count.numpy()
    list(stream.batches(8, seed=0, epoch=0, shuffled=True))

    assert count.numpy() - looked_at == 20


def recorder(seen):
    """Return what notes the numbers of the rows that each replica gets."""

    class Recorded(layers.Layer):
        def call(self, x):
            def note(numbers):
                seen.append(numbers[:, 0].astype(int).tolist())
                return numbers

            return tf.ensure_shape(tf.numpy_function(note, [x], tf.float32), x.shape)

    return Recorded()


@pytest.mark.parametrize("is_streamed", [False, True], ids=["arrays", "pipeline"])
@pytest.mark.parametrize("num", [1, 2, 3])
@pytest.mark.parametrize("num_rows", [36, 37, 41])
def test_each_row_of_an_epoch_is_seen_once_over_all_shards(replicas_of, num, num_rows, is_streamed):
    seen = []

    def recording(config):
        model = keras.Sequential([keras.Input((6,)), recorder(seen), layers.Dense(3)])
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return model

    x, y = draw(num_rows).train
    x[:, 0] = np.arange(num_rows)
    data = Data(train=(x, y))
    workload = Given(recording, streamed(data) if is_streamed else data)
    loop = begin(GraphLoop(workload, replicas_of(num)), workload)
    for _ in range(2):
        seen.clear()
        loop.epoch()
        assert sorted(np.concatenate(seen)) == [*range(num_rows)]


@pytest.mark.parametrize("settings", [{}, {"cache": "memory"}], ids=["read anew", "cached"])
def test_a_restored_trial_goes_on_in_the_order_of_the_rows(replicas_of, settings):
    data = draw(37, 19)
    workload = Given(classifier, streamed(data, **settings))
    whole, values = run_fresh(workload, replicas_of(1), epochs=4)
    loop = begin(GraphLoop(workload, replicas_of(1)), workload)
    first = [loop.epoch(), loop.epoch()]
    state = loop.state()
    other = Given(classifier, streamed(data, **settings))
    later = begin(GraphLoop(other, replicas_of(1)), other)
    later.restore(state)
    second = [later.epoch(), later.epoch()]
    model = later._current.program.model

    found = [v.numpy() for v in (*model.variables, *model.optimizer.variables)]
    assert bits(([*first, *second], found)) == bits((whole, values))


def test_the_next_trial_of_a_process_has_the_numbers_of_a_fresh_one(replicas_of):
    workload = Given(classifier, streamed(draw(37, 19), cache="memory"))
    fresh = run_fresh(workload, replicas_of(1), seed=2)
    loop = GraphLoop(workload, replicas_of(1))
    run(loop, workload, seed=1)

    assert bits(run(loop, workload, seed=2)) == bits(fresh)
    assert loop.num_programs == 1


@pytest.mark.parametrize("cache", ["memory", "folder"])
def test_rows_are_mapped_once_where_they_are_cached(cache, tmp_path):
    count = tf.Variable(0)

    def counted(x, y):
        count.assign_add(1)
        return x * 2, y

    data = draw(20)
    kept = str(tmp_path) if cache == "folder" else cache
    stream = Stream(Pipeline(data.train, counted, cache=kept), "train")
    read = count.numpy()
    epochs = [list(stream.batches(8, seed=1, epoch=epoch, shuffled=True)) for epoch in (1, 2)]

    assert count.numpy() - read == 20
    for batches in epochs:
        numbers = np.concatenate([some for some, _ in batches])
        assert sorted(numbers) == list(range(20))
        np.testing.assert_array_equal(
            np.concatenate([rows[0] for _, rows in batches]), data.train[0][numbers] * 2
        )


def test_cached_rows_are_mixed_by_the_seed_of_the_epoch():
    stream = Stream(Pipeline(draw(20).train, cache="memory"), "train")
    orders = [numbers_of(stream, 8, epoch=epoch) for epoch in (1, 1, 2)]

    assert orders[0] == orders[1] != orders[2]
    assert numbers_of(stream, 8, shuffled=False) == [[*range(8)], [*range(8, 16)], [*range(16, 20)]]


def test_cached_rows_are_mixed_alike_whatever_seed_the_process_has():
    orders = []
    for seed in (1, 2):
        keras.utils.set_random_seed(seed)
        stream = Stream(Pipeline(draw(20).train, cache="memory"), "train")
        orders.append([numbers_of(stream, 8, epoch=epoch) for epoch in (0, 1)])

    assert orders[0] == orders[1]


@pytest.mark.parametrize("settings", [{}, {"cache": "memory"}], ids=["read anew", "cached"])
def test_the_same_seed_gives_the_same_batches(settings):
    def epochs(seed):
        stream = Stream(Pipeline(draw(20).train, augment=noisy, **settings), "train")
        return [
            (numbers.numpy().tolist(), rows.numpy().tolist())
            for epoch in (0, 1, 2)
            for numbers, (rows, _) in stream.batches(8, seed=seed, epoch=epoch, shuffled=True)
        ]

    assert epochs(1) == epochs(1)
    assert epochs(1) != epochs(2)


def test_a_cache_goes_with_its_stream(tmp_path):
    stream = Stream(Pipeline(draw(20).train, cache=str(tmp_path)), "train")
    numbers_of(stream, 8)
    assert list(tmp_path.rglob("*train*"))
    stream._folder.cleanup()

    assert not list(tmp_path.iterdir())


def test_a_cache_without_room_is_refused_before_training(tmp_path, monkeypatch):
    import shutil
    from types import SimpleNamespace

    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=100))
    stream = Stream(Pipeline(draw(20).train, cache=str(tmp_path)), "train")

    with pytest.raises(WorkloadError, match=r"cache of Data\.train takes .* free: leave cache out"):
        numbers_of(stream, 8)


def test_rows_of_a_file_that_is_mapped_into_memory_are_not_copied(tmp_path):
    x = np.random.default_rng(0).normal(size=(50, 6)).astype("float32")
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    stream = Stream(Pipeline((mapped, np.arange(50))), "train")
    (source, _) = stream._source
    numbers, (rows, _) = next(stream.batches(10, seed=0, epoch=0, shuffled=True))

    assert np.asarray(memoryview(source)).ctypes.data == mapped.ctypes.data
    np.testing.assert_array_equal(rows, x[numbers])


def test_files_are_read_by_the_map(tmp_path, replicas_of):
    x = np.random.default_rng(0).integers(0, 255, (12, 4, 4, 1)).astype("uint8")
    for number, image in enumerate(x):
        tf.io.write_file(str(tmp_path / f"{number}.png"), tf.io.encode_png(image))
    names = np.array([str(tmp_path / f"{number}.png") for number in range(12)])

    def decode(name, label):
        return tf.reshape(tf.io.decode_png(tf.io.read_file(name)), (4, 4, 1)), label

    stream = Stream(Pipeline((names, np.arange(12)), decode), "train")
    numbers, (images, labels) = next(stream.batches(12, seed=0, epoch=0, shuffled=True))

    np.testing.assert_array_equal(images, x[numbers])
    np.testing.assert_array_equal(labels, numbers)


def test_a_file_that_is_not_there_is_told_before_training(tmp_path):
    def decode(name, label):
        return tf.ensure_shape(tf.io.decode_png(tf.io.read_file(name)), (4, 4, 1)), label

    names = np.array([str(tmp_path / "none.png")])
    with pytest.raises(
        WorkloadError, match=r"first rows of Data\.train cannot be read: .*none\.png"
    ):
        Stream(Pipeline((names, np.arange(1)), decode), "train")


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        pytest.param(lambda x, y: x, r"must return a row \(x, y\)", id="no row"),
        pytest.param(lambda x, y: (x[: y % 3], y), "rows of one known shape", id="unknown shape"),
    ],
)
def test_a_map_that_makes_no_rows_is_refused(mapping, message):
    with pytest.raises(WorkloadError, match=message):
        Stream(Pipeline(draw(20).train, mapping), "train")


def test_waiting_for_rows_is_measured(replicas_of):
    def slow(x, y):
        return tf.numpy_function(_sleepy, [x], tf.float32), y

    def shaped(x, y):
        x, y = slow(x, y)
        return tf.ensure_shape(x, (6,)), y

    workload = Given(without_dropout, Data(train=Pipeline(draw(40).train, shaped, prefetch=1)))
    loop = begin(GraphLoop(workload, replicas_of(1)), workload)
    loop.epoch()
    loop.epoch()
    assert 0.5 < loop.performance["perf/input_wait"] <= 1

    resident = Given(without_dropout, draw(40))
    loop = begin(GraphLoop(resident, replicas_of(1)), resident)
    loop.epoch()
    assert loop.performance["perf/input_wait"] == 0
    assert loop.performance["perf/rows_per_s"] > 0


class Slow(layers.Layer):
    """A layer that takes its time with each batch."""

    def call(self, x):
        return tf.ensure_shape(tf.numpy_function(_sleepy, [x], tf.float32), x.shape)


@pytest.mark.parametrize("num", [1, 2])
def test_training_does_not_count_as_waiting(replicas_of, num):
    def slow(config):
        model = keras.Sequential([keras.Input((6,)), layers.Dense(4), Slow(), layers.Dense(3)])
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return model

    workload = Given(slow, streamed(draw(44)))
    loop = begin(GraphLoop(workload, replicas_of(num)), workload)
    loop.epoch()
    loop.epoch()
    assert 0 < loop.performance["perf/input_wait"] < 0.4


def _sleepy(x):
    import time

    time.sleep(0.03)  # as a slow disk or a large model would
    return x


def test_the_first_rows_are_those_that_a_model_sees():
    x, y = first_rows_of(Pipeline(draw(20).train, lambda x, y: (x * 2, y)), "train", 1)

    np.testing.assert_array_equal(x, draw(20).train[0][:1] * 2)
    np.testing.assert_array_equal(y, draw(20).train[1][:1])


def test_rows_that_xla_trains_on_may_come_from_a_pipeline(replicas_of):
    def jitted(config):
        model = without_dropout(config)
        model.jit_compile = True
        return model

    data = draw(37, 19)
    resident = run_fresh(Given(jitted, data), replicas_of(1))

    assert furthest(run_fresh(Given(jitted, streamed(data)), replicas_of(1)), resident) < 1e-5
