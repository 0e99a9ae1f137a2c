"""Telling of trials that wait for their rows."""

import pytest

from tune_tf.trainables.resource_warnings import InputWaitMonitor

pytestmark = pytest.mark.cluster


def told(caplog, *iterations):
    """Return what is warned of at the end of a sweep.

    Args:
        caplog: Of the test.
        iterations: ``(number in its process, seconds, share of them that waited)``.
    """
    watch = InputWaitMonitor()
    for number, took_s, share in iterations:
        result = {"iterations_since_restore": number, "time_this_iter_s": took_s}
        if share is not None:
            result["perf/input_wait"] = share
        watch.on_trial_result(result=result)
    watch.on_experiment_end()
    return [record.getMessage() for record in caplog.records]


def test_a_sweep_that_waits_for_its_rows_is_told_what_to_change(caplog):
    (warning,) = told(caplog, (1, 10, 0.0), (2, 1.0, 0.1), (3, 3.0, 0.5))

    assert warning.startswith("the trials waited 40 % of their time for rows")
    assert "Pipeline(cache=...)" in warning


@pytest.mark.parametrize(
    "iterations",
    [
        pytest.param([(2, 1.0, 0.2), (3, 1.0, 0.1)], id="a little waiting"),
        pytest.param([(1, 10.0, 0.9), (2, 10.0, 0.1)], id="only in the first iteration"),
        pytest.param([(2, 1.0, None)], id="not measured"),
        pytest.param([], id="no iterations"),
    ],
)
def test_trials_without_input_waits_get_no_warning(caplog, iterations):
    assert told(caplog, *iterations) == []
