"""Who computes which batch, and whose gradient counts."""

import random

import pytest

from tune_tf.training.parameter_server.tasks import BatchScheduler


def test_staleness_counts_the_updates_since_the_weights_were_read():
    scheduler = BatchScheduler(3, max_staleness=2)
    first, second, third = (scheduler.deal() for _ in range(3))

    assert [scheduler.accepts(batch, 0) for batch in (first, second, third)] == [True] * 3
    assert (first, second, third, scheduler.deal()) == (0, 1, 2, None)
    assert (scheduler.version, scheduler.staleness) == (3, [0, 1, 2])


def test_a_gradient_beyond_the_bound_is_dropped_and_its_batch_dealt_again():
    scheduler = BatchScheduler(4, max_staleness=1)
    slow = scheduler.deal()
    for _ in range(2):
        assert scheduler.accepts(scheduler.deal(), scheduler.version)

    assert not scheduler.accepts(slow, 0)
    assert scheduler.deal() == slow
    assert (scheduler.version, scheduler.num_stale) == (2, 1)


@pytest.mark.parametrize("seed", range(5))
def test_each_batch_is_applied_once_whatever_the_order(seed):
    rng = random.Random(seed)
    scheduler = BatchScheduler(30, max_staleness=2)
    applied, at_work, left = [], {}, set(range(4))
    while left:
        worker = rng.choice(sorted(left))
        if worker in at_work:
            batch, version = at_work.pop(worker)
            if scheduler.accepts(batch, version):
                applied.append(batch)
        batch = scheduler.deal()
        if batch is None:
            left.remove(worker)
        else:
            at_work[worker] = batch, scheduler.version

    assert sorted(applied) == list(range(30))
    assert max(scheduler.staleness) <= 2
