import pytest

from tune_tf.tracking import descriptions
from tune_tf.tracking.descriptions import SweepDetails


@pytest.fixture
def trial(tmp_path):
    from ray.train._internal.storage import StorageContext
    from ray.tune import PlacementGroupFactory
    from ray.tune.experiment import Trial

    trial = Trial(
        "scripted",
        stub=True,
        trial_id="t1",
        experiment_tag="4_rate=1",
        storage=StorageContext(str(tmp_path), "exp"),
    )
    trial.update_resources(PlacementGroupFactory([{"CPU": 2, "GPU": 0.5}]))
    return trial


def test_a_trial_is_told_with_its_numbers_and_what_it_reserves(trial):
    details = SweepDetails()
    assert details.start_tags(trial) == {
        "tune_tf.trial_name": str(trial),
        "tune_tf.trial_number": "3",
        "tune_tf.devices": "2 CPU, 0.5 GPU",
    }


def test_what_a_sweep_does_not_know_is_left_out():
    assert SweepDetails().end_tags({"training_iteration": 5}) == {}
    assert SweepDetails().artifacts() == {}


@pytest.mark.parametrize(
    ("iteration", "rung"), [(1, {}), (2, {"tune_tf.rung": "2"}), (7, {"tune_tf.rung": "6"})]
)
def test_the_rung_is_the_highest_that_was_reached(iteration, rung):
    details = SweepDetails(rungs=lambda: (2, 6, 18))
    assert details.end_tags({"training_iteration": iteration}) == rung


@pytest.mark.parametrize(
    ("bundles", "devices"),
    [
        ([{"CPU": 1}], "1 CPU"),
        ([{"CPU": 1}, {"GPU": 0.5}, {"GPU": 1}], "1 CPU, 1.5 GPU"),
        ([{}, {"CPU": 4}], "4 CPU"),
    ],
)
def test_reserved_devices_are_told_over_all_bundles(trial, bundles, devices):
    from ray.tune import PlacementGroupFactory

    trial.update_resources(PlacementGroupFactory(bundles))
    assert descriptions.reserved_devices(trial) == devices


@pytest.mark.parametrize(
    ("result", "node"),
    [
        ({"hostname": "gpu-1", "node_ip": "10.0.0.7"}, "gpu-1 10.0.0.7"),
        ({"hostname": "10.0.0.7", "node_ip": "10.0.0.7"}, "10.0.0.7"),
        ({}, ""),
    ],
)
def test_the_node_is_told_by_name_and_address(result, node):
    assert descriptions.node_name(result) == node
