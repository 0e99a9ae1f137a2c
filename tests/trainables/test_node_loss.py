"""A trial over several nodes of which one is lost, on several raylets of this machine."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.tf, pytest.mark.cluster, pytest.mark.slow]

NOTHING = {"groups": [], "processes": [], "cpus": 0}


@pytest.fixture(scope="module")
def drill():
    """What the drill told of its sweeps."""
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1"}
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("node_loss_drill.py"))],
        env=os.environ | quiet,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("sweep", ["stopped", "node_lost", "fewer"])
def test_the_workers_of_a_trial_are_on_two_nodes(drill, sweep):
    assert len(set(drill[sweep]["nodes"])) == 2


def test_trials_that_a_scheduler_stops_leave_nothing_behind(drill):
    assert drill["stopped"]["iterations"] == [2, 2]
    assert drill["stopped"]["left"] == NOTHING


def test_workers_serve_one_trial_after_another(drill):
    assert len(set(drill["stopped"]["pids"])) == 1
    assert drill["stopped"]["num_failures"] == 0


@pytest.mark.parametrize("sweep", ["node_lost", "fewer"])
def test_a_trial_that_lost_a_node_ends_with_the_numbers_of_an_undisturbed_one(drill, sweep):
    told = drill[sweep]

    assert (told["statuses"], told["num_failures"]) == (["TERMINATED"], 1)
    for name, expected in drill["one_device"].items():
        assert told[name] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("sweep", ["node_lost", "fewer"])
def test_a_trial_that_lost_a_node_leaves_nothing_behind(drill, sweep):
    assert drill[sweep]["left"] == NOTHING


def test_a_lost_worker_is_replaced_on_a_node_that_has_room(drill):
    assert drill["node_lost"]["num_workers"][-1] == 2


def test_a_trial_goes_on_with_fewer_workers_where_there_is_no_room(drill):
    assert drill["fewer"]["num_workers"] == [2, 2, 2, 1, 1, 1, 1]
