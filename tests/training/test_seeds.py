"""Every random draw of a trial follows from one number."""

import numpy as np
import pytest

from tune_tf.training.seeds import derive_seed, epoch_order

pytestmark = pytest.mark.tf


def test_trials_and_sweeps_have_seeds_of_their_own():
    seeds = {derive_seed(sweep, trial) for sweep in range(20) for trial in range(20)}

    assert len(seeds) == 400
    assert all(0 <= seed < 2**32 for seed in seeds)


def test_the_seed_of_a_trial_never_changes():
    assert derive_seed(7, 3) == derive_seed(7, 3)


def test_an_order_holds_each_row_once():
    np.testing.assert_array_equal(np.sort(epoch_order(1, 2, 50)), np.arange(50))


def test_orders_differ_by_seed_and_epoch_and_need_no_earlier_epoch():
    orders = {epoch_order(seed, epoch, 50).tobytes() for seed in range(3) for epoch in range(3)}

    assert len(orders) == 9
    np.testing.assert_array_equal(epoch_order(2, 2, 50), epoch_order(2, 2, 50))
