"""What is compared."""

import pytest

from tune_tf.estimate.scaling.candidates import candidates
from tune_tf.parallelism import Mirrored, MultiWorker
from tune_tf.resources import TrialResources

COPIES = (Mirrored, MultiWorker)


def labels(**given):
    settings = {"cpus_per_device": 1, "max_devices": 1, "on_gpus": False, "kinds": COPIES} | given
    return [each.label for each in candidates(Mirrored(), **settings)]


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


def test_one_replica_on_one_device_comes_first_and_then_one_thing_differs_at_a_time():
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


def test_on_gpus_every_replica_has_one_and_its_cores():
    found = candidates(Mirrored(), cpus_per_device=4, max_devices=2, on_gpus=True, kinds=COPIES)
    spread = {each.label: each.resources for each in found if each.dimension == "devices"}
    assert spread == {
        "1 replica": TrialResources(cpus=4, gpus=1),
        "2 replicas": TrialResources(cpus=8, gpus=2),
        "2 workers": TrialResources(cpus=8, gpus=2),
    }


def test_fit_trains_on_one_device_only():
    assert "2 replicas" not in labels(max_devices=2, loop="fit")


def test_settings_of_batches_and_statistics_are_kept():
    given = MultiWorker(2, synchronized_batch_norm=True, micro_batches=2, placement="spread")
    found = candidates(given, cpus_per_device=1, max_devices=2, on_gpus=False, kinds=COPIES)
    assert {each.parallelism.synchronized_batch_norm for each in found} == {True}
    assert {each.parallelism.micro_batches for each in found} == {2}


def test_a_kind_that_cannot_use_so_many_devices_is_left_out():
    class EvenOnly(Mirrored):
        @classmethod
        def on_devices(cls, num_devices):
            return None if num_devices % 2 else Mirrored(num_devices)

    found = candidates(
        Mirrored(), cpus_per_device=1, max_devices=3, on_gpus=False, kinds=[EvenOnly]
    )
    assert [it.label for it in found if it.parallelism.num_replicas > 1] == ["2 replicas"]
