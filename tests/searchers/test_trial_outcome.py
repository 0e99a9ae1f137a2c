import math

import pytest

from tune_tf.objective import Objective
from tune_tf.outcome import Outcome
from tune_tf.searchers.criteria import SearchCriteria
from tune_tf.searchers.trial_outcome import TrialOutcome, failed_outcome, outcome_from_result
from tune_tf.tune_internals import controller

LOSS = SearchCriteria((Objective("loss", "min"),))


def result(iteration, loss=0.5, **more):
    return {"training_iteration": iteration, "loss": loss, **more}


def judged(last, *, last_seen=2, is_natural_end=False):
    return outcome_from_result(
        last, LOSS, last_seen=last_seen, is_natural_end=lambda _: is_natural_end
    )


@pytest.mark.parametrize(
    ("last", "seen", "is_natural_end", "outcome"),
    [
        (result(3, done=True), 2, True, Outcome.COMPLETED),
        (result(3, done=True), 2, False, Outcome.PRUNED),
        (result(1, done=True), None, False, Outcome.PRUNED),
        (result(1, done=True), None, True, Outcome.COMPLETED),
        (result(2, done=True), 2, False, Outcome.COMPLETED),
        (result(2), 2, False, Outcome.OUT_OF_BUDGET),
        (None, 2, False, Outcome.PRUNED),
        (None, None, False, Outcome.OUT_OF_BUDGET),
        ({"trial_id": "a"}, None, False, Outcome.OUT_OF_BUDGET),
        (result(3, math.nan, done=True), 2, True, Outcome.DIVERGED),
        (result(3, math.inf, done=True), 2, False, Outcome.DIVERGED),
        ({"training_iteration": 3, "done": True}, 2, True, Outcome.DIVERGED),
        ({"done": True}, None, True, Outcome.DIVERGED),
    ],
)
def test_an_end_without_a_reason_is_inferred(last, seen, is_natural_end, outcome):
    assert judged(last, last_seen=seen, is_natural_end=is_natural_end).outcome is outcome


@pytest.mark.parametrize("reason", Outcome, ids=lambda outcome: outcome.value)
def test_a_reason_that_is_written_is_believed(reason):
    last = result(3, stop_reason=reason.value, stop_cause="because")
    assert judged(last) == TrialOutcome(reason, 0.5, 3, "because")


def test_a_trial_that_is_called_complete_with_nan_has_diverged():
    verdict = judged(result(3, math.nan, stop_reason="completed"))
    assert verdict == TrialOutcome(Outcome.DIVERGED, None, 3, "loss is nan at iteration 3")


def test_a_trial_that_failed_again_has_the_last_error(monkeypatch):
    """Tune appends each failure to the error file of a trial."""
    text = "".join(
        f"Failure # {number} (occurred at 2026-11-25_14-00-0{number})\n{error}\n"
        for number, error in enumerate(["MemoryError: no room", "ValueError: no rows"], 1)
    )
    monkeypatch.setattr(controller, "error_text", lambda trial_id: text)

    assert failed_outcome("a") == TrialOutcome(Outcome.ERROR, cause="ValueError: no rows")
