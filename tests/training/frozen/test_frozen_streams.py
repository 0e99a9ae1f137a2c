"""Frozen layers of streamed rows, whose outputs are computed once as those of arrays are."""

import keras
import pytest
import tensorflow as tf
from frozen_models import (
    images,
    images_and_numbers,
    masked,
    nested,
    text,
    texts,
    tokens,
    two_inputs,
)
from frozen_trials import Counted, FreezesLast, loop_with
from guards import guarded, slow
from streams import streamed
from trials import Given, begin, furthest, run

from tune_tf.data import Pipeline
from tune_tf.result_keys import FROZEN_BYTES, FROZEN_SHARE
from tune_tf.training.checkpoint import Checkpoint
from tune_tf.training.devices import Devices
from tune_tf.training.replicas.replicas import Replicas
from tune_tf.workload import Data

pytestmark = pytest.mark.tf


def doubled(x, *labels):
    return keras.tree.map_structure(lambda a: a * 2, x), *labels


def pipeline_and_arrays():
    return Data(Pipeline(images().train, map=doubled), images().validation)


STREAMED = {
    "rows as they are": (nested, lambda: streamed(images())),
    "mapped, weighted": (nested, lambda: streamed(images(weights=True), map=doubled)),
    "validation in arrays": (nested, pipeline_and_arrays),
    "masked": (masked, lambda: streamed(tokens())),
    "text": (text, lambda: streamed(texts())),
    "two inputs": (two_inputs, lambda: streamed(images_and_numbers())),
}


@pytest.mark.parametrize("name", guarded(STREAMED, ["mapped, weighted", "masked"]))
def test_a_trial_has_the_numbers_of_the_whole_model(name, replicas_of):
    build, data = STREAMED[name]
    workload, replicas = Given(build, data()), replicas_of(1)
    loop = loop_with(workload, replicas, Counted())
    assert furthest(run(loop, workload), run(loop_with(workload, replicas), workload)) < 1e-6
    assert 0.3 < loop.performance[FROZEN_SHARE] <= 1


def compiled_by_xla(config):
    model = nested(config)
    model.jit_compile = True
    return model


@pytest.mark.parametrize(
    ("build", "num_replicas"), [(nested, 1), slow(nested, 2), slow(compiled_by_xla, 1)]
)
def test_a_model_that_a_callback_changed_gets_the_streamed_rows(
    build, num_replicas, replicas_of, caplog
):
    data = streamed(images(weights=True))
    workload = Given(build, data, callbacks=lambda config: [FreezesLast()])
    replicas = replicas_of(num_replicas)
    loop = loop_with(workload, replicas, Counted())
    shared = run(loop, workload)
    assert FROZEN_SHARE in loop.performance
    assert furthest(shared, run(loop_with(workload, replicas), workload)) < 1e-6
    assert "XLA cannot compile" not in caplog.text


def test_a_restored_trial_goes_on_in_the_order_of_the_rows(replicas_of, tmp_path):
    workload = Given(nested, streamed(images(), map=doubled))
    loop = begin(loop_with(workload, replicas_of(1), Counted()), workload)
    loop.epoch()
    loop.state().write(tmp_path)
    expected = loop.epoch()
    for cache in (Counted(), None):
        other = begin(loop_with(workload, replicas_of(1), cache), workload, seed=9)
        other.restore(Checkpoint.read(tmp_path))
        assert other.epoch() == pytest.approx(expected, abs=1e-6)


def test_trials_share_and_other_rows_or_maps_get_their_own(replicas_of):
    class Scaled(Given):
        def load_data(self, config):
            scale = config["scale"]
            return streamed(images(), map=lambda x, y: (x * scale, y))

    cache, workload = Counted(), Scaled(nested, None)
    loop, plain = (loop_with(workload, replicas_of(1), each) for each in (cache, None))
    for scale, num_computed in ((1.0, 1), (1.0, 1), (2.0, 2), (3.0, 3)):
        config = {"scale": scale}
        shared = run(loop, workload, config, epochs=1)
        assert furthest(shared, run(plain, workload, config, epochs=1)) < 1e-6
        assert cache.num_computed == num_computed


@pytest.mark.parametrize(
    ("memory_bytes", "is_shared"),
    [pytest.param(9_000, True, id="room"), pytest.param(3_000, False, id="no room")],
)
def test_arrays_that_do_not_fit_a_device_share_outputs_that_do(memory_bytes, is_shared):
    workload, small = Given(nested, images()), Replicas(Devices(("CPU:0",), memory_bytes))
    loop = loop_with(workload, small, Counted())
    assert furthest(run(loop, workload), run(loop_with(workload, small), workload)) < 1e-6
    assert (FROZEN_BYTES in loop.performance) == is_shared


def data_set():
    return Data(tf.data.Dataset.from_tensor_slices(images().train).batch(8), images().validation)


NOT_REPEATED = {
    "data set": (data_set, "Data.train is a data set"),
}


@pytest.mark.parametrize("name", NOT_REPEATED)
def test_rows_that_may_change_are_not_shared(name, replicas_of, caplog):
    caplog.set_level("INFO", "tune_tf")
    data, reason = NOT_REPEATED[name]
    workload = Given(nested, data())
    loop = loop_with(workload, replicas_of(1), Counted())
    run(loop, workload, epochs=1)
    assert FROZEN_SHARE not in loop.performance
    assert reason in caplog.text


def test_a_row_that_cannot_be_read_fails_the_epoch_as_without_sharing(replicas_of):
    def checked(x, y):
        with tf.control_dependencies([tf.debugging.assert_greater(x[0, 0, 0], 0.0)]):
            return tf.identity(x), y

    data = images()
    data.train[0][17] = -1
    workload = Given(nested, streamed(data, map=checked))
    loop = begin(loop_with(workload, replicas_of(1), Counted()), workload)
    with pytest.raises(tf.errors.InvalidArgumentError, match="assertion failed"):
        loop.epoch()
