"""Candidates measured in processes of their own."""

import pytest

from tune_tf.estimate.scaling.benchmark_rounds import Effort, ScalingBenchmark
from tune_tf.estimate.scaling.candidates import ScalingCandidate
from tune_tf.parallelism import Mirrored, MultiWorker
from tune_tf.resources import TrialResources
from tune_tf.workloads.digits import DigitsMLP

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


@pytest.fixture(scope="module")
def measurements(ray_cluster):
    one, two = TrialResources(cpus=1), TrialResources(cpus=2)
    candidates = (
        ScalingCandidate("devices", Mirrored(), one),
        ScalingCandidate("devices", MultiWorker(2), two),
        ScalingCandidate("batch", Mirrored(), one, batch_scale=64.0),
        ScalingCandidate("data", Mirrored(), one, data_fraction=0.25),
    )
    told = []
    rounds = ScalingBenchmark(
        DigitsMLP(),
        {"width": 8},
        "graph",
        0,
        Effort(rounds=2, round_s=0.05, max_batches=16),
        lambda what, done: told.append(done),
    )
    found, profile = rounds.measure(candidates, profile=True)
    assert told == sorted(told)
    assert rounds.total_rows == 1079
    return found, profile


def test_each_is_measured_in_every_round_with_its_processes(measurements):
    one, two, _, part = measurements[0]
    for each in (one, two, part):
        assert len(each.rates) == len(each.reference_rates) == 2
        assert min(each.rates) > 0
        assert each.start_s > 0
        assert 0 < each.input_share <= 1
    assert (one.num_rows, two.num_rows, part.num_rows) == (512, 512, 128)
    assert one.speed_up == 1
    assert two.memory_bytes > 1.5 * one.memory_bytes  # of two processes, not of the one that asks


def test_what_cannot_train_says_why_and_stops_no_other(measurements):
    assert measurements[0][2].error == "a batch of 2048 rows is more than the 512 rows of data"


def test_the_profile_is_one_that_tensorboard_looks_for(measurements):
    (path,) = measurements[1]
    assert path.startswith("plugins/profile/")
    assert path.endswith(".xplane.pb")
    assert b"while" in measurements[1][path]  # the loop over batches is in it
