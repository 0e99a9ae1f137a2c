"""Who computes which batch, and whose gradient counts."""

import random

import pytest

from tune_tf.training.parameter_server.tasks import BatchScheduler


@pytest.fixture
def scheduler():
    return BatchScheduler(3, max_staleness=2)


def test_batches_are_dealt_in_their_order(scheduler):
    assert [scheduler.deal(0), scheduler.deal(1), scheduler.deal(0)] == [0, 1, 2]


def test_staleness_counts_the_updates_since_the_weights_were_read(scheduler):
    first, second = scheduler.deal(0), scheduler.deal(1)

    assert scheduler.judge(0, first, 0) == "apply"
    assert scheduler.judge(1, second, 0) == "apply"
    assert scheduler.version == 2
    assert scheduler.statistics.staleness == [0, 1]
    assert (scheduler.statistics.mean_staleness, scheduler.statistics.max_staleness) == (0.5, 1)


def test_a_gradient_beyond_the_bound_is_dropped_and_its_batch_dealt_again():
    scheduler = BatchScheduler(4, max_staleness=1)
    slow = scheduler.deal(0)
    for _ in range(2):
        assert scheduler.judge(1, scheduler.deal(1), scheduler.version) == "apply"

    assert scheduler.judge(0, slow, 0) == "stale"
    assert scheduler.deal(1) == slow
    assert (scheduler.version, scheduler.statistics.num_stale) == (2, 1)


def test_an_idle_worker_takes_over_the_batch_under_way_for_longest(scheduler):
    taken = [scheduler.deal(0), scheduler.deal(1), scheduler.deal(2)]
    scheduler.judge(2, taken[2], 0)

    assert scheduler.deal(2) == taken[0]


def test_the_first_gradient_of_a_batch_counts_and_later_ones_are_late(scheduler):
    slow = scheduler.deal(0)
    for _ in range(2):
        scheduler.judge(1, scheduler.deal(1), scheduler.version)
    assert scheduler.deal(1) == slow

    assert scheduler.judge(1, slow, scheduler.version) == "apply"
    assert scheduler.is_complete
    assert scheduler.judge(0, slow, 0) == "late"
    assert (scheduler.version, scheduler.statistics.num_late) == (3, 1)


def test_the_batch_of_a_lost_worker_is_dealt_next(scheduler):
    lost = scheduler.deal(0)
    scheduler.forget(0)

    assert scheduler.deal(1) == lost


def test_a_batch_that_two_compute_stays_with_the_one_that_is_left(scheduler):
    batches = [scheduler.deal(0) for _ in range(3)]
    assert scheduler.deal(1) == batches[0]
    scheduler.forget(1)

    assert scheduler.judge(0, batches[0], 0) == "apply"


def test_nothing_is_dealt_of_a_complete_epoch():
    scheduler = BatchScheduler(1, max_staleness=1)
    scheduler.judge(0, scheduler.deal(0), 0)

    assert scheduler.deal(0) is None


@pytest.mark.parametrize("seed", range(5))
def test_each_batch_is_applied_once_whatever_happens(seed):
    rng = random.Random(seed)
    scheduler = BatchScheduler(30, max_staleness=2)
    applied, at_work = [], {}
    while not scheduler.is_complete:
        worker = rng.randrange(4)
        if worker in at_work and rng.random() < 0.1:
            scheduler.forget(worker)
            del at_work[worker]
        elif worker in at_work:
            batch, version = at_work.pop(worker)
            if scheduler.judge(worker, batch, version) == "apply":
                applied.append(batch)
        else:
            at_work[worker] = scheduler.deal(worker), scheduler.version

    assert sorted(applied) == list(range(30))
    assert scheduler.statistics.max_staleness <= 2
