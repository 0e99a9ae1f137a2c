import math

import pytest

from tune_tf import outcome_rules, trial_observer
from tune_tf.outcome import STOP_REASON, Outcome

COMPLETED, PRUNED, OUT_OF_BUDGET = Outcome.COMPLETED, Outcome.PRUNED, Outcome.OUT_OF_BUDGET
DIVERGED, OOM, ERROR, INTERRUPTED = (
    Outcome.DIVERGED,
    Outcome.OOM,
    Outcome.ERROR,
    Outcome.INTERRUPTED,
)
DONE = {"loss": 1.0, "done": True}
GOING_ON = {"loss": 1.0, "done": False}
TWO_FAILURES = (
    "Failure # 1 (occurred at 2026-01-02_03-04-05)\nResourceExhaustedError: OOM\n"
    "Failure # 1 (occurred at 2026-01-02_03-04-06)\nValueError: boom\n"
)


@pytest.mark.parametrize(
    ("seen", "last_result", "own_end", "error", "outcome"),
    [
        ("completed", DONE, False, None, COMPLETED),
        ("completed", DONE | {STOP_REASON: "pruned"}, False, None, PRUNED),
        ("completed", DONE | {"loss": math.nan}, False, None, DIVERGED),
        ("completed", DONE | {"loss": math.nan, STOP_REASON: "completed"}, False, None, COMPLETED),
        ("completed", GOING_ON, False, None, PRUNED),
        ("completed", GOING_ON, True, None, COMPLETED),
        ("completed", GOING_ON | {STOP_REASON: "pruned"}, True, None, PRUNED),
        ("completed", {}, False, None, PRUNED),
        ("stopped", GOING_ON, False, None, OUT_OF_BUDGET),
        ("stopped", {}, False, None, OUT_OF_BUDGET),
        ("stopped", DONE | {STOP_REASON: "pruned"}, False, None, PRUNED),
        ("stopped", GOING_ON, False, "", ERROR),
        ("completed", DONE, False, "ValueError: boom", ERROR),
        ("completed", {}, False, "ResourceExhaustedError: OOM", OOM),
        ("completed", {}, False, "ray.exceptions.OutOfMemoryError: killed", OOM),
        ("completed", {}, False, TWO_FAILURES, ERROR),
        ("unfinished", DONE, False, None, INTERRUPTED),
        ("unfinished", {}, False, None, INTERRUPTED),
    ],
)
def test_what_tune_did_tells_how_the_trial_ended(seen, last_result, own_end, error, outcome):
    got = trial_observer.infer_trial_outcome(
        seen, last_result, own_end=own_end, error=error, metrics=("loss",)
    )
    assert got is outcome


@pytest.mark.parametrize(
    ("end", "recorded", "finite", "error", "outcome"),
    [
        (OUT_OF_BUDGET, None, None, None, OUT_OF_BUDGET),  # no result
        (PRUNED, COMPLETED, None, None, PRUNED),
        (PRUNED, DIVERGED, None, None, DIVERGED),
        (COMPLETED, COMPLETED, False, None, DIVERGED),
        (COMPLETED, OOM, False, None, OOM),
        (OUT_OF_BUDGET, ERROR, True, None, ERROR),
        (PRUNED, None, False, None, DIVERGED),
        (COMPLETED, None, True, None, COMPLETED),
        (INTERRUPTED, None, True, "MemoryError", OOM),
        (COMPLETED, PRUNED, False, "", ERROR),
        (None, None, True, None, None),
        (None, None, False, None, DIVERGED),
        *[(PRUNED, each, True, None, each) for each in Outcome],
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
