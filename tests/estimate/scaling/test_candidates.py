"""What is compared."""

import pytest

from tune_tf.estimate.scaling.candidates import candidates
from tune_tf.parallelism import Hybrid, Mirrored, MultiWorker
from tune_tf.resources import TrialResources

COPIES = (Mirrored, MultiWorker)


def copies(like, **given):
    """Return the candidates that copy the model."""
    settings = {"cpus_per_device": 1, "max_devices": 1, "on_gpus": False} | given
    return [it for it in candidates(like, **settings) if isinstance(it.parallelism, COPIES)]


def labels(**given):
    return [each.label for each in copies(Mirrored(), **given)]


def test_every_kind_that_trains_one_model_is_compared():
    found = candidates(Mirrored(), cpus_per_device=1, max_devices=4, on_gpus=False)
    on_four = [each.label for each in found if each.num_devices == 4]
    assert on_four == [
        "1 replica on 4 cores",
        "4 replicas",
        "4 workers",
        "4 stages",
        "2 replicas of 2 stages",
        "4 asynchronous workers",
    ]


def test_candidates_vary_one_dimension_from_one_replica_on_one_device():
    assert labels(max_devices=2) == [
        "1 replica",
        "1 replica on 2 cores",
        "2 replicas",
        "2 workers",
        "batch x 0.5",
        "batch x 2",
        "batch x 4",
        "25% of the data",
        "50% of the data",
    ]


NUMBERS = {1: [], 2: [2], 3: [2, 3], 4: [2, 4], 6: [2, 4, 6], 8: [2, 4, 8]}


@pytest.mark.parametrize(("most", "numbers"), NUMBERS.items())
def test_the_number_of_devices_doubles_up_to_all_of_them(most, numbers):
    found = candidates(Mirrored(), cpus_per_device=1, max_devices=most, on_gpus=False)
    assert [it.num_devices for it in found if isinstance(it.parallelism, MultiWorker)] == numbers


def test_a_quick_look_leaves_out_what_lies_between():
    assert labels(max_devices=4, quick=True) == [
        "1 replica",
        "1 replica on 4 cores",
        "4 replicas",
        "4 workers",
        "batch x 4",
        "25% of the data",
    ]


def test_each_replica_of_a_gpu_candidate_has_a_gpu_and_its_cores():
    found = copies(Mirrored(), cpus_per_device=4, max_devices=2, on_gpus=True)
    spread = {each.label: each.resources for each in found if each.dimension == "devices"}
    assert spread == {
        "1 replica": TrialResources(cpus=4, gpus=1),
        "2 replicas": TrialResources(cpus=8, gpus=2),
        "2 workers": TrialResources(cpus=8, gpus=2),
    }


def test_fit_trains_replicas_in_one_process_only():
    found = labels(max_devices=2, loop="fit")
    assert "2 replicas" in found
    assert "2 workers" not in found


def test_settings_of_batches_and_statistics_are_kept():
    given = MultiWorker(2, synchronized_batch_norm=True, micro_batches=2, placement="spread")
    found = copies(given, max_devices=2)
    assert {each.parallelism.synchronized_batch_norm for each in found} == {True}
    assert {each.parallelism.micro_batches for each in found} == {2}


def test_a_kind_that_cannot_use_so_many_devices_is_left_out():
    found = candidates(Mirrored(), cpus_per_device=1, max_devices=6, on_gpus=False)
    assert [it.label for it in found if isinstance(it.parallelism, Hybrid)] == [
        "2 replicas of 2 stages",
        "3 replicas of 2 stages",
    ]
