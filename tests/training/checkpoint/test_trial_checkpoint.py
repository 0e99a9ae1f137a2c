"""A checkpoint holds everything that a trial needs to go on."""

import functools
import json
import os
import signal
import subprocess
import sys
import textwrap

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


@pytest.mark.parametrize(
    ("first", "then"), [slow(1, 2), (2, 1), slow(1, 3), slow(2, 3), slow(3, 1), slow(3, 2)]
)
def test_a_trial_goes_on_with_any_number_of_replicas(
    first, then, replicas_of, folders, loops, without_break
):
    history, values = gone_on(2, replicas_of(then), folders(first), loop=loops(then))

    assert furthest((history, values), (without_break[0][2:], without_break[1])) <= 1e-6


def test_restoring_an_earlier_state_takes_a_trial_back(replicas_of, folders, without_break):
    loop = begin(GraphLoop(replicas_of(1)), WORKLOAD)
    for _ in range(3):
        loop.epoch()
    loop.restore(Checkpoint.read(folders(1)))

    assert [loop.epoch(), loop.epoch()] == without_break[0][2:]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        pytest.param(
            {"width": 9}, r"has shape \(6, 9\), but the checkpoint holds \(6, 8\)", id="width"
        ),
        pytest.param({"ema": True}, r"variables.*different structure", id="optimizer"),
    ],
)
def test_a_checkpoint_of_another_structure_is_told(other, message, replicas_of, folders):
    loop = begin(GraphLoop(replicas_of(1)), WORKLOAD, other)

    with pytest.raises(CheckpointError, match=message):
        loop.restore(Checkpoint.read(folders(1)))


def test_a_model_comes_out_of_a_checkpoint(folders, without_break, replicas_of):
    model = trained_model(WORKLOAD, {}, folders(1))
    loop = begin(GraphLoop(replicas_of(1)), WORKLOAD)
    loop.epoch()
    metrics = loop.epoch()

    evaluated = model.evaluate(*WORKLOAD.load_data({}).validation, verbose=0, return_dict=True)

    assert evaluated["loss"] == pytest.approx(metrics["val_loss"], rel=1e-6)


PROCESS = """
    import sys, json
    from pathlib import Path
    from checkpointed_trials import WORKLOAD
    from trials import begin
    from tune_tf.training.checkpoint import Checkpoint
    from tune_tf.training.devices import Devices
    from tune_tf.training.loop import GraphLoop
    from tune_tf.training.replicas.replicas import Replicas

    config = {"dropout": 0.4}
    loop = begin(GraphLoop(Replicas(Devices(("CPU:0",)))), WORKLOAD, config)
    folder = Path(sys.argv[1])
    if list(folder.iterdir()):
        loop.restore(Checkpoint.read(folder))
    while True:
        print(json.dumps(loop.epoch()), flush=True)
        loop.state().write(folder)
"""


def _killed_after(num_epochs, folder):
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PROCESS), str(folder)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    lines = [process.stdout.readline() for _ in range(num_epochs)]
    # The file of the last epoch may be there, half there or not yet: all of them must do.
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    return [json.loads(line) for line in lines]


@pytest.mark.slow
def test_a_trial_whose_process_is_killed_goes_on_from_its_last_file(replicas_of, tmp_path):
    _killed_after(2, tmp_path)
    epoch = Checkpoint.read(tmp_path).epoch
    after = _killed_after(2, tmp_path)

    expected, _ = run_fresh(WORKLOAD, replicas_of(1), {"dropout": 0.4}, epochs=epoch + 2)
    for one, other in zip(after, expected[epoch:], strict=True):
        assert one == pytest.approx(other, rel=1e-6)
