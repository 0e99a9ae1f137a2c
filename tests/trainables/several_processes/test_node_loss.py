"""A trial over several nodes of which one is lost, on several raylets of this machine."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from node_loss_drill import CONFIG, NUM_EPOCHS

from tune_tf import Mirrored, trainable
from tune_tf.workloads.digits import DigitsMLP

pytestmark = [pytest.mark.tf, pytest.mark.cluster]

NOTHING = {"groups": [], "processes": [], "cpus": 0}


def drilled():
    """Return what became of a trial of two workers that lost one of their nodes."""
    drill = Path(__file__).with_name("node_loss_drill.py")
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1"}
    done = subprocess.run(
        [sys.executable, str(drill)],
        env=os.environ | quiet,
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def undisturbed():
    """The last result of the same trial on one device of this process."""
    alone = trainable(DigitsMLP, Mirrored(), seed=1)(config=CONFIG)
    for _ in range(NUM_EPOCHS):
        result = alone.train()
    alone.stop()
    return {name: result[name] for name in ("loss", "val_loss")}


def test_losing_a_node_does_not_change_the_numbers_of_a_trial(undisturbed):
    told = drilled()

    assert len(set(told["nodes"])) == 2
    assert (told["status"], told["num_failures"]) == ("TERMINATED", 1)
    assert set(told["num_workers"]) == {2}
    assert {name: told[name] for name in undisturbed} == pytest.approx(undisturbed, rel=1e-5)
    assert told["left"] == NOTHING
