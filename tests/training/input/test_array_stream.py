"""Arrays that a device has no room for: the numbers of arrays on the device."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from guards import slow
from streams import Noisy, classifier, without_dropout, without_room
from trials import ByTape, Given, begin, bits, draw, furthest, run, run_fresh

from tune_tf.data import rows_of
from tune_tf.parallelism import Hybrid
from tune_tf.training.input.array_stream import ArrayStream
from tune_tf.training.input.device_rows import place_rows
from tune_tf.training.loop import GraphLoop
from tune_tf.training.stages.stage_builder import StageDevices, stage_loop
from tune_tf.workload import Data

pytestmark = pytest.mark.tf
DATA = draw(37, 19)


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
    # 37 and 19 rows of 6 floats and a label, 28 or 32 bytes each
    placed = place_rows(rows_of(DATA), without_room(1, memory_bytes))
    parts = {"train": placed.train, "validation": placed.validation}

    assert [name for name, part in parts.items() if isinstance(part, ArrayStream)] == streamed_parts


def jitted(config):
    model = without_dropout(config)
    model.jit_compile = True
    return model


@pytest.mark.parametrize(
    ("workload", "num", "memory_bytes"),
    [
        pytest.param(Given(classifier, DATA), 1, 1500, id="training rows alone"),
        pytest.param(Given(without_dropout, draw(37, 19, weights=True)), 2, 0, id="two replicas"),
        slow(ByTape(without_dropout, DATA), 1, 0, id="a train_step of its own"),
        pytest.param(Noisy(classifier, DATA), 1, 0, id="per_example"),
        slow(Noisy(without_dropout, DATA), 3, 0, id="per_example, three replicas"),
        slow(Given(jitted, DATA), 1, 0, id="XLA"),
    ],
)
def test_streamed_rows_train_to_the_numbers_of_resident_ones(
    replicas_of, workload, num, memory_bytes
):
    streamed = run_fresh(workload, without_room(num, memory_bytes))

    assert furthest(streamed, run_fresh(workload, replicas_of(num))) < 1e-6


@pytest.mark.slow
def test_stages_of_a_model_get_the_rows_too(replicas_of):
    workload = Given(without_dropout, draw(40, 19))
    loop = stage_loop(StageDevices(without_room(4).devices, 2), Hybrid(2, 2, 2))

    assert furthest(run(loop, workload), run_fresh(workload, replicas_of(1))) < 1e-5


def test_a_restored_trial_goes_on_in_the_order_of_the_rows():
    workload, replicas = Given(classifier, DATA), without_room()
    whole = run_fresh(workload, replicas, epochs=4)
    loop = begin(GraphLoop(replicas), workload)
    first = [loop.epoch(), loop.epoch()]
    later = begin(GraphLoop(replicas), workload)
    later.restore(loop.state())
    history = [*first, later.epoch(), later.epoch()]
    model = later.trial.program.model

    values = [v.numpy() for v in (*model.variables, *model.optimizer.variables)]
    assert bits((history, values)) == bits(whole)


def test_the_next_trial_of_a_process_has_the_numbers_of_a_fresh_one():
    workload, replicas = Given(classifier, DATA), without_room()
    loop = GraphLoop(replicas)
    run(loop, workload, seed=1)

    assert bits(run(loop, workload, seed=2)) == bits(run_fresh(workload, replicas, seed=2))
    assert loop.num_programs == 1


def test_the_same_seed_gives_the_same_batches():
    def epochs(seed):
        stream = ArrayStream(draw(20).train)
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
    stream = ArrayStream(rows_of(Data((mapped, np.arange(50)))).train)
    numbers, (rows, _) = next(stream.batches(10, seed=0, epoch=0, shuffled=True))

    assert np.asarray(memoryview(stream.tensors[0])).ctypes.data == mapped.ctypes.data
    np.testing.assert_array_equal(rows, x[numbers])


def recorder(seen):
    """Return what notes the numbers of the rows that each replica gets."""

    class Recorded(keras.layers.Layer):
        def call(self, x):
            def note(numbers):
                seen.append(numbers[:, 0].astype(int).tolist())
                return numbers

            return tf.ensure_shape(tf.numpy_function(note, [x], tf.float32), x.shape)

    return Recorded()


@pytest.mark.parametrize(
    ("num", "num_rows", "is_streamed"), [(3, 37, True), (2, 41, False), slow(2, 36, True)]
)
def test_each_row_of_an_epoch_is_seen_once_over_all_replicas(
    replicas_of, num, num_rows, is_streamed
):
    seen = []

    def recording(config):
        model = keras.Sequential([keras.Input((6,)), recorder(seen), keras.layers.Dense(3)])
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return model

    x, y = draw(num_rows).train
    x[:, 0] = np.arange(num_rows)
    replicas = without_room(num) if is_streamed else replicas_of(num)
    loop = begin(GraphLoop(replicas), Given(recording, Data(train=(x, y))))
    for _ in range(2):
        seen.clear()
        loop.epoch()
        assert sorted(np.concatenate(seen)) == [*range(num_rows)]
