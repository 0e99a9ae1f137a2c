import pickle

import pytest
from ray.tune import PlacementGroupFactory

from tune_tf.parallelism import Folds, Mirrored, ModelParallel, MultiWorker
from tune_tf.trainables.memory.oom_retries import (
    RetryResources,
    increase_memory,
    micro_batches_of,
)

pytestmark = pytest.mark.cluster

ONE, FOLDS = Mirrored(), Folds(num_devices=2)


def saved(reserved, parallelism=ONE, times=1, *, in_pieces=True):
    for _ in range(times):
        reserved = increase_memory(reserved, parallelism, in_micro_batches=in_pieces)
    return reserved


@pytest.mark.parametrize(
    ("bundles", "parallelism", "times", "expected", "pieces"),
    [
        ([{"CPU": 1, "GPU": 0.25}], ONE, 1, [{"CPU": 1, "GPU": 0.5}], 1),
        ([{"CPU": 1, "GPU": 0.25}], ONE, 2, [{"CPU": 1, "GPU": 1}], 1),
        ([{"CPU": 1, "GPU": 0.6}], ONE, 1, [{"CPU": 1, "GPU": 1}], 1),
        ([{}, *[{"CPU": 1, "GPU": 0.25}] * 2], FOLDS, 1, [{"CPU": 1, "GPU": 0.5}] * 2, 1),
        ([{"CPU": 2}], Mirrored(micro_batches=3), 2, [{"CPU": 2}], 12),
        ([{"CPU": 1, "GPU": 1}], Mirrored(micro_batches=3), 2, [{"CPU": 1, "GPU": 1}], 12),
        ([{}, {"CPU": 1}, {"CPU": 1}], MultiWorker(2), 2, [{"CPU": 1}] * 2, 4),
    ],
)
def test_a_retry_doubles_the_share_of_each_process_or_the_micro_batches(
    bundles, parallelism, times, expected, pieces
):
    more = saved(PlacementGroupFactory(bundles, strategy="SPREAD"), parallelism, times)

    assert (more.bundles, more.micro_batches, more.strategy) == (expected, pieces, "SPREAD")
    assert more.head_bundle_is_empty is (len(bundles) > len(expected))


def test_a_batch_that_must_stay_whole_can_only_have_a_larger_share():
    assert saved(PlacementGroupFactory([{"CPU": 2}]), in_pieces=False) is None
    more = saved(PlacementGroupFactory([{"CPU": 1, "GPU": 0.5}]), in_pieces=False)
    assert more.bundles[0]["GPU"] == 1


def test_pieces_of_a_model_in_stages_save_no_memory():
    assert saved(PlacementGroupFactory([{"CPU": 2}]), ModelParallel(2)) is None


def test_an_actor_of_whole_batches_is_not_reused_for_pieces():
    whole = PlacementGroupFactory([{"CPU": 1}])
    pieces, same = (RetryResources([{"CPU": 1}], micro_batches=2) for _ in range(2))

    assert pieces != whole
    assert whole != pieces
    assert pieces == same
    assert micro_batches_of(pickle.loads(pickle.dumps(pieces)), ONE) == 2
    assert micro_batches_of(None, Mirrored(micro_batches=3)) == 3
