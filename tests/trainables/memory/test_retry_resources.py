import pickle

import pytest
from ray.tune import PlacementGroupFactory

from tune_tf.parallelism import Folds, Mirrored, MultiWorker
from tune_tf.trainables.memory.oom_retries import (
    RetryResources,
    increase_memory,
    micro_batches_of,
)

pytestmark = pytest.mark.cluster

ONE = Mirrored()


def saved(reserved, parallelism=ONE, times=1, *, in_pieces=True):
    for _ in range(times):
        reserved = increase_memory(reserved, parallelism, in_micro_batches=in_pieces)
    return reserved


@pytest.mark.parametrize(
    ("share", "times", "shares"), [(0.25, 1, 0.5), (0.25, 2, 1.0), (0.6, 1, 1.0)]
)
def test_a_share_of_a_gpu_is_doubled_up_to_the_whole_card(share, times, shares):
    more = saved(PlacementGroupFactory([{"CPU": 1, "GPU": share}]), times=times)

    assert more.bundles == [{"CPU": 1.0, "GPU": shares}]
    assert more.micro_batches == 1


def test_the_share_of_every_process_is_doubled():
    more = saved(PlacementGroupFactory([{}, *[{"CPU": 1, "GPU": 0.25}] * 2]), Folds(num_devices=2))

    assert more.bundles == [{"CPU": 1.0, "GPU": 0.5}] * 2


@pytest.mark.parametrize("bundle", [{"CPU": 2.0}, {"CPU": 1.0, "GPU": 1.0}])
def test_each_retry_doubles_the_micro_batches(bundle):
    more = saved(PlacementGroupFactory([bundle]), Mirrored(micro_batches=3), times=2)

    assert more.bundles == [bundle]
    assert more.micro_batches == 12


def test_a_retry_of_workers_keeps_bundles_and_doubles_micro_batches():
    reserved = PlacementGroupFactory([{}, {"CPU": 1}, {"CPU": 1}], strategy="SPREAD")
    more = saved(reserved, MultiWorker(2), times=2)

    assert (more.bundles, more.strategy) == ([{"CPU": 1.0}] * 2, "SPREAD")
    assert more.head_bundle_is_empty
    assert more.micro_batches == 4


def test_a_batch_that_must_stay_whole_can_only_have_a_larger_share():
    assert saved(PlacementGroupFactory([{"CPU": 2}]), in_pieces=False) is None
    more = saved(PlacementGroupFactory([{"CPU": 1, "GPU": 0.5}]), in_pieces=False)
    assert more.bundles[0]["GPU"] == 1


def test_an_actor_of_whole_batches_is_not_reused_for_pieces():
    whole, pieces = (
        PlacementGroupFactory([{"CPU": 1}]),
        RetryResources([{"CPU": 1}], micro_batches=2),
    )

    assert pieces != whole
    assert whole != pieces
    assert pieces == RetryResources([{"CPU": 1}], micro_batches=2)


def test_retry_resources_keep_their_fields_when_pickled():
    again = pickle.loads(pickle.dumps(RetryResources([{"CPU": 1}], micro_batches=4)))

    assert micro_batches_of(again, Mirrored()) == 4
    assert micro_batches_of(None, Mirrored(micro_batches=3)) == 3
