"""Trials that reserve GPUs, on fakes: each gets those that Ray reserved for it, and no other."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.tf, pytest.mark.cluster, pytest.mark.slow]


@pytest.fixture(scope="module")
def trials():
    """What each of three trials at a time was given, of four fake GPUs."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("fake_gpu_drill.py"))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_trials_at_the_same_time_use_disjoint_gpus(trials):
    cards = [card for trial in trials for card in trial["grown"]]

    assert sorted(cards) == ["gpu0", "gpu1", "gpu2", "gpu3"]
    assert [trial["names"] for trial in trials if trial["gpus"]] == [["GPU:0", "GPU:1"]] * 2


def test_a_trial_without_gpus_sees_none(trials):
    (trial,) = (trial for trial in trials if not trial["gpus"])

    assert (trial["names"], trial["hides_all"]) == (["CPU:0"], True)
