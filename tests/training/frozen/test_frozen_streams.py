"""Frozen layers of streamed rows, whose outputs are computed once as those of resident rows are."""

import pytest
import tensorflow as tf
from frozen_models import images, images_and_numbers, nested, two_inputs
from frozen_trials import Counted, FreezesLast, loop_with
from guards import slow
from streams import without_room
from trials import Given, begin, furthest, run

from tune_tf.result_keys import FROZEN_LAYERS
from tune_tf.workload import Data

pytestmark = pytest.mark.tf
ROOM = 9_000
"""Memory for the outputs and labels of all rows, of which half is for rows."""


def compiled_by_xla(config):
    model = nested(config)
    model.jit_compile = True
    return model


@pytest.mark.parametrize(
    ("build", "data"),
    [
        pytest.param(nested, lambda: images(weights=True), id="weighted"),
        slow(two_inputs, images_and_numbers, id="two inputs"),
    ],
)
def test_a_trial_has_the_numbers_of_the_whole_model(build, data):
    workload, replicas = Given(build, data()), without_room(1, ROOM)
    loop = loop_with(workload, replicas, Counted())
    assert furthest(run(loop, workload), run(loop_with(workload, replicas), workload)) < 1e-6
    assert loop.performance[FROZEN_LAYERS].startswith("shared")


@pytest.mark.parametrize(("build", "num"), [(nested, 1), slow(nested, 2), slow(compiled_by_xla, 1)])
def test_a_model_that_a_callback_changed_gets_the_streamed_rows(build, num, caplog):
    data = images(weights=True)
    workload = Given(build, data, callbacks=lambda config: [FreezesLast()])
    replicas = without_room(num, ROOM)
    loop = loop_with(workload, replicas, Counted())
    shared = run(loop, workload)
    assert loop.performance[FROZEN_LAYERS].startswith("shared")
    assert furthest(shared, run(loop_with(workload, replicas), workload)) < 1e-6
    assert "XLA cannot compile" not in caplog.text


def data_set():
    return Data(tf.data.Dataset.from_tensor_slices(images().train).batch(8), images().validation)


@pytest.mark.parametrize(
    ("data", "memory_bytes", "reason"),
    [
        pytest.param(data_set, None, "Data.train is a data set", id="a data set"),
        pytest.param(images, 3_000, "do not fit into memory", id="no room for outputs"),
    ],
)
def test_rows_that_may_change_and_outputs_without_room_are_not_shared(data, memory_bytes, reason):
    workload = Given(nested, data())
    loop = begin(loop_with(workload, without_room(1, memory_bytes), Counted()), workload)
    assert not loop._frozen.find(workload, loop.trial.program.model, loop.trial.inputs.rows)
    assert reason in loop._frozen.obstacle
