"""Rows of a pipeline: the numbers of arrays, read while a trial trains."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from guards import slow
from streams import Noisy, as_it_is, classifier, streamed, without_dropout
from trials import ByTape, Given, begin, bits, draw, furthest, run, run_fresh

from tune_tf.data import Pipeline, rows_of
from tune_tf.errors import WorkloadError
from tune_tf.training.devices import Devices
from tune_tf.training.input.device_rows import first_rows_of, place_rows
from tune_tf.training.input.stream import Stream
from tune_tf.training.loop import GraphLoop
from tune_tf.training.replicas.replicas import Replicas
from tune_tf.workload import Data

pytestmark = pytest.mark.tf
layers = keras.layers


@pytest.mark.parametrize(
    ("data", "mapping", "num"),
    [
        slow(draw(37, 19, weights=True), as_it_is, 2, id="weights, mapped, two replicas"),
        pytest.param(draw(37, 19, weights=True), as_it_is, 1, id="weights, mapped"),
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
    [
        pytest.param(None, [], id="a CPU"),
        pytest.param(4000, [], id="room for all"),
        pytest.param(2500, ["validation"], id="room for training rows alone"),
        pytest.param(1500, ["train"], id="room for validation rows"),
        pytest.param(700, ["train", "validation"], id="no room"),
    ],
)
def test_arrays_that_a_device_has_no_room_for_are_streamed(memory_bytes, streamed_parts):
    data = draw(37, 19)  # 37 and 19 rows of 6 floats and a label, 28 or 32 bytes each
    placed = place_rows(rows_of(data), Replicas(Devices(("CPU:0",), memory_bytes)))
    parts = {"train": placed.train, "validation": placed.validation}

    assert [name for name, part in parts.items() if isinstance(part, Stream)] == streamed_parts


@pytest.mark.parametrize(
    "memory_bytes",
    [pytest.param(1500, id="room for validation rows"), slow(700, id="no room")],
)
def test_arrays_that_are_streamed_train_to_the_same_numbers(memory_bytes):
    data = draw(37, 19)
    small = Replicas(Devices(("CPU:0",), memory_bytes))

    assert (
        furthest(
            run_fresh(Given(classifier, data), small),
            run_fresh(Given(classifier, data), Replicas(Devices(("CPU:0",)))),
        )
        < 1e-6
    )


def test_a_train_step_of_its_own_gets_the_rows_too(replicas_of):
    data = draw(37, 19)
    resident = run_fresh(ByTape(without_dropout, data), replicas_of(1))
    of_pipeline = run_fresh(ByTape(without_dropout, streamed(data)), replicas_of(1))

    assert furthest(of_pipeline, resident) < 1e-6


@pytest.mark.slow
def test_stages_of_a_model_get_the_rows_too(replicas_of, loop_on_grid):
    data = draw(40, 19)
    whole = run_fresh(Given(without_dropout, data), replicas_of(1))
    workload = Given(without_dropout, streamed(data))

    assert furthest(run(loop_on_grid(workload, 2, 2, 2), workload), whole) < 1e-5


@pytest.mark.slow
def test_what_is_computed_of_a_row_has_the_same_seeds(replicas_of):
    data = draw(37, 19)
    resident = run_fresh(Noisy(classifier, data), replicas_of(1))

    assert furthest(run_fresh(Noisy(classifier, streamed(data)), replicas_of(1)), resident) < 1e-6


def test_a_restored_trial_goes_on_in_the_order_of_the_rows(replicas_of):
    data = draw(37, 19)
    workload = Given(classifier, streamed(data))
    whole, values = run_fresh(workload, replicas_of(1), epochs=4)
    loop = begin(GraphLoop(replicas_of(1)), workload)
    first = [loop.epoch(), loop.epoch()]
    state = loop.state()
    other = Given(classifier, streamed(data))
    later = begin(GraphLoop(replicas_of(1)), other)
    later.restore(state)
    second = [later.epoch(), later.epoch()]
    model = later.trial.program.model

    found = [v.numpy() for v in (*model.variables, *model.optimizer.variables)]
    assert bits(([*first, *second], found)) == bits((whole, values))


@pytest.mark.slow
def test_the_next_trial_of_a_process_has_the_numbers_of_a_fresh_one(replicas_of):
    workload = Given(classifier, streamed(draw(37, 19)))
    fresh = run_fresh(workload, replicas_of(1), seed=2)
    loop = GraphLoop(replicas_of(1))
    run(loop, workload, seed=1)

    assert bits(run(loop, workload, seed=2)) == bits(fresh)
    assert loop.num_programs == 1


def test_the_same_seed_gives_the_same_batches():
    def epochs(seed):
        stream = Stream(Pipeline(draw(20).train), "train")
        return [
            (numbers.numpy().tolist(), rows.numpy().tolist())
            for epoch in (0, 1, 2)
            for numbers, (rows, _) in stream.batches(8, seed=seed, epoch=epoch, shuffled=True)
        ]

    assert epochs(1) == epochs(1)
    assert epochs(1) != epochs(2)


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
        pytest.param(
            lambda x, y: (x + tf.random.uniform([6]), y),
            "uses RandomUniform.*of per_example",
            id="draws",
        ),
        pytest.param(lambda x, y: (x[: y % 3], y), "rows of one known shape", id="unknown shape"),
    ],
)
def test_a_map_that_makes_no_rows_or_draws_is_refused(mapping, message):
    with pytest.raises(WorkloadError, match=message):
        Stream(Pipeline(draw(20).train, mapping), "train")


def test_the_first_rows_are_those_that_a_model_sees():
    x, y = first_rows_of(Pipeline(draw(20).train, lambda x, y: (x * 2, y)), "train", 1)

    np.testing.assert_array_equal(x, draw(20).train[0][:1] * 2)
    np.testing.assert_array_equal(y, draw(20).train[1][:1])


@pytest.mark.slow
def test_rows_that_xla_trains_on_may_come_from_a_pipeline(replicas_of):
    def jitted(config):
        model = without_dropout(config)
        model.jit_compile = True
        return model

    data = draw(37, 19)
    resident = run_fresh(Given(jitted, data), replicas_of(1))

    assert furthest(run_fresh(Given(jitted, streamed(data)), replicas_of(1)), resident) < 1e-5
