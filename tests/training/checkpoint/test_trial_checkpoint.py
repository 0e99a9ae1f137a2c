"""A checkpoint holds everything that a trial needs to go on."""

import functools

import pytest
from checkpointed_trials import WORKLOAD, gone_on
from guards import slow
from trials import begin, furthest, run_fresh

from tune_tf.errors import CheckpointError
from tune_tf.training.checkpoint import Checkpoint
from tune_tf.training.export import trained_model
from tune_tf.training.loop import GraphLoop

pytestmark = pytest.mark.tf


@pytest.fixture(scope="module")
def loops(replicas_of):
    """Return a function from a number of replicas to a loop that keeps its programs."""
    return functools.cache(lambda num: GraphLoop(replicas_of(num)))


@pytest.fixture(scope="module")
def without_break(replicas_of):
    """Four epochs in one go."""
    return run_fresh(WORKLOAD, replicas_of(1), epochs=4)


@pytest.mark.parametrize(("first", "then"), [slow(1, 2), (2, 1), slow(3, 2)])
def test_a_trial_goes_on_with_any_number_of_replicas(
    first, then, replicas_of, folders, loops, without_break
):
    history, values = gone_on(2, replicas_of(then), folders(first), loop=loops(then))

    assert furthest((history, values), (without_break[0][2:], without_break[1])) <= 1e-6
    loop = loops(then)  # the running trial is taken back
    loop.restore(Checkpoint.read(folders(first)))
    assert [loop.epoch(), loop.epoch()] == history


@pytest.mark.parametrize(
    ("other", "message"),
    [
        pytest.param(
            {"width": 9}, r"of shape \(6, 9\) .*, but the checkpoint holds .* \(6, 8\)", id="width"
        ),
        pytest.param({"ema": True}, r"variables.*different structure", id="optimizer"),
    ],
)
def test_a_checkpoint_of_another_structure_is_told(other, message, replicas_of, folders):
    loop = begin(GraphLoop(replicas_of(1)), WORKLOAD, other)

    with pytest.raises(CheckpointError, match=message):
        loop.restore(Checkpoint.read(folders(1)))


def test_a_model_comes_out_of_a_checkpoint(folders, without_break):
    model = trained_model(WORKLOAD, {}, folders(1))

    evaluated = model.evaluate(*WORKLOAD.load_data({}).validation, verbose=0, return_dict=True)
    assert evaluated["loss"] == pytest.approx(without_break[0][1]["val_loss"], rel=1e-6)
