"""The order of rows in an epoch."""

import pytest
from exactness_cases import CASES
from trials import Given, built, furthest, run_fresh

pytestmark = pytest.mark.tf


class InOrder(Given):
    """Rows in the order of the data."""

    def shuffle(self, config):
        return False


def test_rows_in_a_fixed_order_give_the_numbers_of_fit_without_shuffle(replicas_of):
    case = CASES["SGD with momentum, even"].workload
    workload = InOrder(case._build, case._data, case._batch_size)
    x, y = case._data.train
    model = built(workload, replicas_of(1))
    logs = [
        model.fit(
            x,
            y,
            batch_size=case._batch_size,
            shuffle=False,
            validation_data=case._data.validation,
            verbose=0,
        ).history
        for _ in range(3)
    ]
    history, _ = run_fresh(workload, replicas_of(1))
    for ours, theirs in zip(history, logs, strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"][0], rel=1e-5)
    assert furthest(run_fresh(case, replicas_of(1)), run_fresh(workload, replicas_of(1))) > 1e-6
