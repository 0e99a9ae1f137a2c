import pytest

from tune_tf.constraint import Constraint
from tune_tf.objective import Objective
from tune_tf.outcome import Outcome
from tune_tf.tracking.progress_summary import BestTrial, ProgressSummary


@pytest.fixture
def standing():
    return ProgressSummary(Objective("loss", "min"), (), {})


def end(standing, trial_id, loss, outcome=Outcome.COMPLETED):
    return standing.ended(trial_id, f"trial {trial_id}", {"lr": loss}, outcome, {"loss": loss})


def test_the_best_trial_is_told_with_its_config(standing):
    assert end(standing, "a", 2.0)
    assert end(standing, "b", 1.0)
    assert not end(standing, "c", 3.0)
    assert standing.best == BestTrial("b", "trial b", 1.0, {"lr": 1.0})
    assert standing.tags() == {
        "tune_tf.best_trial_id": "b",
        "tune_tf.best_config": '{"lr": 1.0}',
    }


def test_without_any_finite_value_there_is_no_best(standing):
    assert not end(standing, "a", float("nan"))
    assert standing.tags() == {}


def test_the_live_metrics_are_those_that_changed_and_how_many_ended(standing):
    end(standing, "a", 2.0)
    outcomes = {"a": Outcome.COMPLETED, "x": Outcome.INTERRUPTED}
    first = standing.live(outcomes, best=True)
    second = standing.live({**outcomes, "b": Outcome.PRUNED}, best=False)
    assert first == {"trials/completed": 1.0, "best/loss": 2.0, "trials/ended": 1.0}
    assert second == {"trials/pruned": 1.0, "trials/ended": 2.0}
    assert list(second)[-1] == "trials/ended"


def test_at_the_end_only_counts_that_were_not_shown_are_news(standing):
    outcomes = {"a": Outcome.COMPLETED, "x": Outcome.INTERRUPTED}
    standing.live(outcomes, best=False)
    assert standing.final(outcomes, every=False) == {"trials/interrupted": 1.0}


def test_after_a_resume_also_counts_of_zero_are_news(standing):
    assert standing.final({}, every=True) == {f"trials/{each.value}": 0.0 for each in Outcome}


@pytest.mark.parametrize(("mode", "peak"), [("min", (1.0, 2)), ("max", (3.0, 1))])
def test_the_peak_of_a_running_trial_is_its_best_report(mode, peak):
    standing = ProgressSummary(Objective("loss", mode), (), {})
    for step, loss in enumerate([3.0, 1.0, float("nan"), 1.0], start=1):
        standing.reported("a", step, {"loss": loss})
    assert standing.peak("a") == peak


def test_a_resume_goes_on_from_the_state():
    objective, constraints = Objective("loss", "min"), [Constraint("loss", ">=", 0.5)]
    first = ProgressSummary(objective, constraints, {})
    first.reported("running", 1, {"loss": 4.0})
    end(first, "a", 2.0)
    end(first, "infeasible", 0.1)
    second = ProgressSummary(objective, constraints, first.state())
    assert second.best == first.best == BestTrial("a", "trial a", 2.0, {"lr": 2.0})
    assert second.peak("running") == (4.0, 1)
    assert not end(second, "b", 3.0)


def test_after_a_resume_all_counts_are_told_at_the_end():
    """MLflow leaves out what comes at a step that it has, so what was shown may not be there."""
    standing = ProgressSummary(None, (), {})
    outcomes = {"a": Outcome.COMPLETED}
    standing.live(outcomes, best=False)
    assert standing.final(outcomes, every=True)["trials/completed"] == 1.0
