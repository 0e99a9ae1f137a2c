"""What a trace says."""

import pytest

from tune_tf.objective import Objective
from tune_tf.simulation import SweepEndReason, Trace, VirtualResult

LOSS = Objective("val_loss", "min")


def trace(*results, objective=LOSS):
    """Return a trace of ``(trial, iteration, value)``, with three iterations to a full run."""
    events = tuple(
        VirtualResult(10.0 * number, trial, iteration, value, number)
        for number, (trial, iteration, value) in enumerate(results, 1)
    )
    return Trace(objective, 3, events, (), SweepEndReason.FINISHED)


RESULTS = [(0, 1, 0.1), (1, 3, 0.9), (0, 3, 0.5), (2, 3, 0.7), (3, 3, 0.2)]


def test_a_good_value_on_the_way_does_not_count_as_found():
    assert trace(*RESULTS).epochs_to(0.3) == 5


@pytest.mark.parametrize(
    ("target", "epochs"), [(1.0, 2), (0.9, 2), (0.5, 3), (0.2, 5), (0.1, None)]
)
def test_the_epochs_to_a_target_count_all_trials_and_the_target_itself(target, epochs):
    assert trace(*RESULTS).epochs_to(target) == epochs


def test_a_metric_that_is_to_be_large_is_compared_the_other_way():
    accuracy = trace((0, 3, 0.5), (1, 3, 0.9), objective=Objective("val_accuracy", "max"))
    assert accuracy.best_value == 0.9
    assert accuracy.epochs_to(0.8) == 2


def test_a_trace_without_a_full_run_has_no_best_value():
    assert trace((0, 1, 0.1)).best_value is None


def test_virtual_time_ends_with_the_last_result():
    assert trace(*RESULTS).virtual_s == 50.0
    assert trace().virtual_s == 0.0
