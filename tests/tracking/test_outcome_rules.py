import math

import pytest

from tune_tf import outcome_rules
from tune_tf.outcome import STOP_REASON, Outcome
from tune_tf.tracking import outcome_tracker, parent_run

METRICS = ("loss",)


@pytest.mark.parametrize(
    ("result", "own_end", "outcome"),
    [
        ({"loss": 1.0}, True, Outcome.COMPLETED),
        ({"loss": 1.0}, False, Outcome.PRUNED),
        ({"loss": math.nan}, True, Outcome.DIVERGED),
        ({"loss": math.inf}, False, Outcome.DIVERGED),
        ({"accuracy": 1.0}, True, Outcome.COMPLETED),
        ({"loss": math.nan, STOP_REASON: "completed"}, False, Outcome.COMPLETED),
        ({"loss": 1.0, STOP_REASON: "diverged"}, True, Outcome.DIVERGED),
    ],
    ids=[
        "own end",
        "stopped",
        "nan",
        "inf and stopped",
        "objective not reported",
        "stamp before own judgement",
        "stamp before own end",
    ],
)
def test_a_last_result_tells_how_the_trial_ended(result, own_end, outcome):
    assert outcome_tracker.infer_result_outcome(result, own_end=own_end, metrics=METRICS) is outcome


def test_without_a_metric_to_judge_no_trial_diverges():
    assert (
        outcome_tracker.infer_result_outcome({"loss": math.nan}, own_end=True) is Outcome.COMPLETED
    )


DONE = {"loss": 1.0, "done": True}
GOING_ON = {"loss": 1.0, "done": False}


@pytest.mark.parametrize(
    ("seen", "last_result", "error", "outcome"),
    [
        ("completed", DONE, None, Outcome.COMPLETED),
        ("completed", DONE | {STOP_REASON: "pruned"}, None, Outcome.PRUNED),
        ("completed", DONE | {"loss": math.nan}, None, Outcome.DIVERGED),
        ("completed", GOING_ON, None, Outcome.PRUNED),
        ("completed", {}, None, Outcome.PRUNED),
        ("stopped", GOING_ON, None, Outcome.OUT_OF_BUDGET),
        ("stopped", {}, None, Outcome.OUT_OF_BUDGET),
        ("stopped", DONE | {STOP_REASON: "pruned"}, None, Outcome.PRUNED),
        ("stopped", GOING_ON, "", Outcome.ERROR),
        ("completed", DONE, "ValueError: boom", Outcome.ERROR),
        ("completed", {}, "ResourceExhaustedError: OOM", Outcome.OOM),
        ("completed", {}, "ray.exceptions.OutOfMemoryError: killed", Outcome.OOM),
        ("unfinished", GOING_ON, None, Outcome.INTERRUPTED),
        ("unfinished", {}, None, Outcome.INTERRUPTED),
        ("unfinished", DONE, None, Outcome.INTERRUPTED),
    ],
)
def test_what_tune_did_tells_how_the_trial_ended(seen, last_result, error, outcome):
    got = outcome_tracker.infer_trial_outcome(
        seen, last_result, own_end=False, error=error, metrics=METRICS
    )
    assert got is outcome


@pytest.mark.parametrize(
    ("last_result", "own_end", "outcome"),
    [
        (GOING_ON, True, Outcome.COMPLETED),
        (GOING_ON | {STOP_REASON: "completed"}, False, Outcome.COMPLETED),
        (GOING_ON | {STOP_REASON: "pruned"}, True, Outcome.PRUNED),
    ],
    ids=["at its limit", "stamped at its limit", "stamped before it"],
)
def test_a_trial_that_is_stopped_while_it_waits_may_have_run_to_its_limit(
    last_result, own_end, outcome
):
    got = outcome_tracker.infer_trial_outcome("completed", last_result, own_end=own_end)
    assert got is outcome


@pytest.mark.parametrize(
    ("outcomes", "interrupted", "status"),
    [
        ([Outcome.COMPLETED, Outcome.ERROR], False, "FINISHED"),
        ([Outcome.PRUNED, Outcome.OUT_OF_BUDGET], False, "FINISHED"),
        ([Outcome.ERROR, Outcome.OOM, Outcome.DIVERGED], False, "FAILED"),
        ([Outcome.COMPLETED, Outcome.INTERRUPTED], False, "KILLED"),
        ([Outcome.COMPLETED], True, "KILLED"),
        ([], False, "FINISHED"),
    ],
)
def test_the_sweep_fails_only_if_every_trial_failed(outcomes, interrupted, status):
    assert parent_run.sweep_status(outcomes, interrupted=interrupted) == status


def test_what_came_before_the_last_failure_is_not_its_cause():
    error = (
        "Failure # 1 (occurred at 2026-01-02_03-04-05)\nResourceExhaustedError: OOM\n"
        "Failure # 1 (occurred at 2026-01-02_03-04-06)\nValueError: boom\n"
    )
    assert outcome_rules.last_failure(error).strip() == "ValueError: boom"
    outcome = outcome_tracker.infer_trial_outcome("completed", {}, own_end=False, error=error)
    assert outcome is Outcome.ERROR


COMPLETED, PRUNED, OUT_OF_BUDGET = Outcome.COMPLETED, Outcome.PRUNED, Outcome.OUT_OF_BUDGET
DIVERGED, OOM, ERROR = Outcome.DIVERGED, Outcome.OOM, Outcome.ERROR
TABLES = {
    "scheduler": [
        (OUT_OF_BUDGET, None, None, None, OUT_OF_BUDGET),  # no result
        (COMPLETED, COMPLETED, True, None, COMPLETED),
        (COMPLETED, COMPLETED, False, None, DIVERGED),
        (COMPLETED, DIVERGED, True, None, DIVERGED),
        (COMPLETED, DIVERGED, False, None, DIVERGED),
        (COMPLETED, OOM, False, None, OOM),
        (OUT_OF_BUDGET, ERROR, True, None, ERROR),
        (COMPLETED, PRUNED, False, None, PRUNED),  # with a cause
        (COMPLETED, None, False, None, DIVERGED),
        (OUT_OF_BUDGET, None, False, None, DIVERGED),
        (COMPLETED, None, True, None, COMPLETED),
        (OUT_OF_BUDGET, None, True, None, OUT_OF_BUDGET),
    ],
    "searcher": [
        (PRUNED, None, None, None, PRUNED),  # stopped while it waited
        (OUT_OF_BUDGET, None, None, None, OUT_OF_BUDGET),  # never started
        (PRUNED, COMPLETED, None, None, PRUNED),
        (PRUNED, DIVERGED, None, None, DIVERGED),
        *[(COMPLETED, each, True, None, each) for each in Outcome],
        *[(PRUNED, each, False, None, each) for each in Outcome if each is not COMPLETED],
        (COMPLETED, COMPLETED, False, None, DIVERGED),
        (PRUNED, None, False, None, DIVERGED),
        *[(each, None, True, None, each) for each in (COMPLETED, PRUNED, OUT_OF_BUDGET)],
    ],
    "tracker": [
        (Outcome.INTERRUPTED, None, True, "MemoryError", OOM),
        (COMPLETED, PRUNED, False, "", ERROR),
        *[(PRUNED, each, True, None, each) for each in Outcome],
        (COMPLETED, None, False, None, DIVERGED),
        *[(each, None, True, None, each) for each in Outcome],
    ],
    "trainable": [
        (None, None, True, None, None),
        (None, None, False, None, DIVERGED),
        (COMPLETED, None, True, None, COMPLETED),
        (COMPLETED, None, False, None, DIVERGED),
    ],
    "view": [
        (None, None, True, None, None),
        *[(None, each, True, None, each) for each in Outcome],
        (None, None, True, "ValueError: boom", ERROR),
        (None, None, True, "ResourceExhaustedError: OOM", OOM),
    ],
}
"""What each of those that ask makes of what it knows: end, recorded, finite, error, outcome."""


@pytest.mark.parametrize(
    ("end", "recorded", "finite", "error", "outcome"),
    [
        pytest.param(*row, id=f"{asker}-{n}")
        for asker in TABLES
        for n, row in enumerate(TABLES[asker])
    ],
)
def test_all_infer_an_outcome_by_the_same_rules(end, recorded, finite, error, outcome):
    inferred = outcome_rules.infer_outcome(end, recorded=recorded, finite=finite, error=error)
    assert inferred is outcome


def test_the_cause_of_a_divergence_names_the_metrics_that_are_not_finite():
    result = {"loss": math.nan, "accuracy": 0.5}
    cause = outcome_rules.divergence_cause(result, ["loss", "accuracy", "f1"], 3)
    assert cause == "loss is nan and f1 is not reported at iteration 3"
    assert outcome_rules.divergence_cause(result, ["loss"], None) == "loss is nan"
