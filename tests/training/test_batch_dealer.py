"""Who computes which batch, and whose gradient counts."""

import random

import pytest

from tune_tf.training.parameter_server.batch_scheduler import BatchScheduler


@pytest.fixture
def dealer():
    return BatchScheduler(3, max_staleness=2)


def test_batches_are_dealt_in_their_order(dealer):
    assert [dealer.deal(0), dealer.deal(1), dealer.deal(0)] == [0, 1, 2]


def test_staleness_counts_the_updates_since_the_weights_were_read(dealer):
    first, second = dealer.deal(0), dealer.deal(1)

    assert dealer.judge(0, first, 0) == "apply"
    assert dealer.judge(1, second, 0) == "apply"
    assert dealer.version == 2
    assert dealer.statistics.staleness == [0, 1]
    assert (dealer.statistics.mean_staleness, dealer.statistics.max_staleness) == (0.5, 1)


def test_a_gradient_beyond_the_bound_is_dropped_and_its_batch_dealt_again():
    dealer = BatchScheduler(4, max_staleness=1)
    slow = dealer.deal(0)
    for _ in range(2):
        assert dealer.judge(1, dealer.deal(1), dealer.version) == "apply"

    assert dealer.judge(0, slow, 0) == "stale"
    assert dealer.deal(1) == slow
    assert (dealer.version, dealer.statistics.num_stale) == (2, 1)


def test_an_idle_worker_takes_over_the_batch_under_way_for_longest(dealer):
    taken = [dealer.deal(0), dealer.deal(1), dealer.deal(2)]
    dealer.judge(2, taken[2], 0)

    assert dealer.deal(2) == taken[0]


def test_whoever_comes_first_counts(dealer):
    slow = dealer.deal(0)
    for _ in range(2):
        dealer.judge(1, dealer.deal(1), dealer.version)
    assert dealer.deal(1) == slow

    assert dealer.judge(1, slow, dealer.version) == "apply"
    assert dealer.is_complete
    assert dealer.judge(0, slow, 0) == "late"
    assert (dealer.version, dealer.statistics.num_late) == (3, 1)


def test_the_batch_of_a_lost_worker_is_dealt_next(dealer):
    lost = dealer.deal(0)
    dealer.forget(0)

    assert dealer.deal(1) == lost


def test_a_batch_that_two_compute_stays_with_the_one_that_is_left(dealer):
    batches = [dealer.deal(0) for _ in range(3)]
    assert dealer.deal(1) == batches[0]
    dealer.forget(1)

    assert dealer.judge(0, batches[0], 0) == "apply"


def test_nothing_is_dealt_of_a_complete_epoch():
    dealer = BatchScheduler(1, max_staleness=1)
    dealer.judge(0, dealer.deal(0), 0)

    assert dealer.deal(0) is None


@pytest.mark.parametrize("seed", range(5))
def test_each_batch_is_applied_once_whatever_happens(seed):
    rng = random.Random(seed)
    dealer = BatchScheduler(30, max_staleness=2)
    applied, at_work = [], {}
    while not dealer.is_complete:
        worker = rng.randrange(4)
        if worker in at_work and rng.random() < 0.1:
            dealer.forget(worker)
            del at_work[worker]
        elif worker in at_work:
            batch, version = at_work.pop(worker)
            if dealer.judge(worker, batch, version) == "apply":
                applied.append(batch)
        else:
            at_work[worker] = dealer.deal(worker), dealer.version

    assert sorted(applied) == list(range(30))
    assert dealer.statistics.max_staleness <= 2
