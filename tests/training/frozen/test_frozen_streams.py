"""Frozen layers of streamed rows, whose outputs are computed once as those of resident rows are."""

import pytest
import tensorflow as tf
from frozen_models import images, images_and_numbers, nested, two_inputs
from frozen_trials import Counted, FreezesLast, loop_with
from guards import slow
from streams import without_room
from trials import Given, begin, furthest, run

from tune_tf.result_keys import FROZEN_BYTES, FROZEN_SHARE
from tune_tf.training.checkpoint import Checkpoint
from tune_tf.workload import Data

pytestmark = pytest.mark.tf
ROOM = 9_000
"""Memory for the outputs and labels of all rows, of which half is for rows."""


def compiled_by_xla(config):
    model = nested(config)
    model.jit_compile = True
    return model


@pytest.mark.parametrize(
    ("build", "data", "memory_bytes", "is_shared"),
    [
        pytest.param(nested, lambda: images(weights=True), ROOM, True, id="weighted"),
        pytest.param(nested, images, 3_000, False, id="no room for outputs"),
        slow(two_inputs, images_and_numbers, ROOM, True, id="two inputs"),
    ],
)
def test_a_trial_has_the_numbers_of_the_whole_model(build, data, memory_bytes, is_shared):
    workload, replicas = Given(build, data()), without_room(1, memory_bytes)
    loop = loop_with(workload, replicas, Counted())
    assert furthest(run(loop, workload), run(loop_with(workload, replicas), workload)) < 1e-6
    assert (FROZEN_BYTES in loop.performance) == is_shared


@pytest.mark.parametrize(("build", "num"), [(nested, 1), slow(nested, 2), slow(compiled_by_xla, 1)])
def test_a_model_that_a_callback_changed_gets_the_streamed_rows(build, num, caplog):
    data = images(weights=True)
    workload = Given(build, data, callbacks=lambda config: [FreezesLast()])
    replicas = without_room(num, ROOM)
    loop = loop_with(workload, replicas, Counted())
    shared = run(loop, workload)
    assert FROZEN_SHARE in loop.performance
    assert furthest(shared, run(loop_with(workload, replicas), workload)) < 1e-6
    assert "XLA cannot compile" not in caplog.text


@pytest.mark.slow
def test_a_restored_trial_goes_on_in_the_order_of_the_rows(tmp_path):
    workload, replicas = Given(nested, images()), without_room(1, ROOM)
    loop = begin(loop_with(workload, replicas, Counted()), workload)
    loop.epoch()
    loop.state().write(tmp_path)
    expected = loop.epoch()
    for cache in (Counted(), None):
        other = begin(loop_with(workload, replicas, cache), workload, seed=9)
        other.restore(Checkpoint.read(tmp_path))
        assert other.epoch() == pytest.approx(expected, abs=1e-6)


def test_batches_of_a_data_set_are_not_shared(replicas_of, caplog):
    caplog.set_level("INFO", "tune_tf")
    train = tf.data.Dataset.from_tensor_slices(images().train).batch(8)
    workload = Given(nested, Data(train, images().validation))
    loop = loop_with(workload, replicas_of(1), Counted())
    run(loop, workload, epochs=1)
    assert FROZEN_SHARE not in loop.performance
    assert "Data.train is a data set" in caplog.text
