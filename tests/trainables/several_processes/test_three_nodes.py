"""Trials on three nodes that lose processes and nodes, on several raylets of this machine."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from three_nodes_drill import LOSSES, NODES, NUM_EPOCHS, NUM_ROWS

pytestmark = [pytest.mark.tf, pytest.mark.cluster, pytest.mark.slow]

ONCE_EACH = [[*range(1, NUM_EPOCHS + 1)]] * len(LOSSES)


@pytest.fixture(scope="module")
def told():
    """What became of the sweeps."""
    drill = Path(__file__).with_name("three_nodes_drill.py")
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1"}
    done = subprocess.run(
        [sys.executable, str(drill)],
        env=os.environ | quiet,
        capture_output=True,
        text=True,
        check=False,
        timeout=580,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_each_node_loads_once_and_tasks_on_all_nodes_prepare(told):
    sweep = told["undisturbed"]

    assert sweep["epochs"] == ONCE_EACH
    assert (sweep["loads"], sweep["prepared"]) == ([1] * NODES, NODES * NUM_ROWS)
    assert sweep["nodes"] == NODES


@pytest.mark.parametrize(("name", "num_failures"), [("workers", 1), ("disturbed", 2)])
def test_trials_go_on_elsewhere_from_their_checkpoints_and_leave_nothing(told, name, num_failures):
    sweep = told[name]

    assert {*sweep["statuses"]} == {"TERMINATED"}
    assert num_failures <= sum(sweep["failures"]) <= num_failures + 1
    for epochs in sweep["epochs"]:
        assert [*dict.fromkeys(epochs)] == ONCE_EACH[0]
        assert len(epochs) - NUM_EPOCHS <= sum(sweep["failures"])  # an epoch a restart
    assert sweep["left"] == {"groups": [], "processes": [], "cpus": 0}


def test_losing_a_process_and_a_node_does_not_change_a_number(told):
    assert told["disturbed"]["curves"] == told["undisturbed"]["curves"]


def test_workers_on_three_nodes_that_lost_one_give_the_numbers_of_one_device(told):
    of_one = told["undisturbed"]["curves"]

    assert told["workers"]["num_workers"][0] == [NODES] * len(told["workers"]["epochs"][0])
    for workers, alone in zip(told["workers"]["curves"], of_one, strict=True):
        assert workers == [pytest.approx(epoch, rel=1e-5) for epoch in alone]
