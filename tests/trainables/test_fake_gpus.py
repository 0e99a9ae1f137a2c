"""Trials that reserve GPUs, on fake ones: each gets those that Ray reserved, and no other."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.tf, pytest.mark.cluster, pytest.mark.slow]


@pytest.fixture(scope="module")
def told():
    """What trials were given, of four fake GPUs."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("fake_gpu_drill.py"))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_trials_at_the_same_time_use_disjoint_gpus_of_the_type_that_they_ask_for(told):
    (whole,) = (trial for trial in told if trial["gpus"] == 2)
    shared = [trial["cards"] for trial in told if trial["gpus"] == 0.75]

    assert sorted([*whole["cards"].split(","), *shared]) == ["0", "1", "2", "3"]
    assert (whole["names"], whole["num_visible"], whole["limits"]) == (["GPU:0", "GPU:1"], 2, [])
    assert sorted([trial["type"] for trial in told], key=str) == ["H100", None, None, None]


def test_a_trial_without_gpus_sees_none(told):
    (trial,) = (trial for trial in told if not trial["gpus"])

    assert (trial["names"], trial["num_visible"]) == (["CPU:0"], 0)
    assert trial["logical"] == ["/device:CPU:0"]


def test_a_share_is_one_of_the_card_that_ray_reserved(told):
    """The cards have 4096, 4104, 4112 and 4120 MiB, of which CUDA takes 768 in each process."""
    shared = [trial for trial in told if trial["gpus"] == 0.75]

    assert {trial["cards"]: trial["limits"] for trial in shared} == {
        trial["cards"]: [2304 + 6 * int(trial["cards"])] for trial in shared
    }
