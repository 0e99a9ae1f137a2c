"""Distribution of free devices among running trials."""

from types import SimpleNamespace

import pytest


@pytest.mark.parametrize(
    ("base", "reserved"),
    [
        pytest.param({"CPU": 1.0, "GPU": 0.5}, {"CPU": 1.0, "GPU": 1}, id="a share of a card"),
        pytest.param({"CPU": 1.0, "GPU": 1.0}, {"CPU": 1.0, "GPU": 2}, id="a card"),
        pytest.param({"CPU": 1.0}, {"CPU": 5}, id="a cpu"),
        pytest.param({"CPU": 2.0}, {"CPU": 4}, id="two cpus"),
    ],
)
def test_a_trial_is_given_whole_cards_or_as_many_cpus_once_more(base, reserved):
    from ray.tune import PlacementGroupFactory

    from tune_tf.schedulers.resource_changing import _share_evenly

    base = PlacementGroupFactory([base])
    trial = SimpleNamespace(placement_group_factory=base)
    cluster = SimpleNamespace(get_num_cpus=lambda: 5, get_num_gpus=lambda: 2)
    controller = SimpleNamespace(_resource_updater=cluster, get_live_trials=lambda: [trial])
    scheduler = SimpleNamespace(base_trial_resources=base)

    wanted = _share_evenly(controller, trial, {"training_iteration": 1}, scheduler)

    assert wanted.bundles == [reserved]


def test_a_trial_that_ran_out_of_memory_keeps_what_it_has():
    from tune_tf.schedulers.resource_changing import _share_evenly
    from tune_tf.trainables.memory.oom_retries import RetryResources

    trial = SimpleNamespace(placement_group_factory=RetryResources([{"CPU": 1}], micro_batches=2))
    assert (
        _share_evenly(SimpleNamespace(), trial, {"training_iteration": 1}, SimpleNamespace())
        is None
    )
