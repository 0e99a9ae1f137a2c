from collections import Counter

import pytest
from ray.tune.experiment import Trial

from tune_tf.objective import Objective
from tune_tf.outcome import Outcome
from tune_tf.tracking.descriptions import SweepDetails
from tune_tf.tracking.parent_run import ParentRun


def parent_of(objective, constraints=(), state=None):
    return ParentRun(objective, constraints, SweepDetails(), state or {})


@pytest.fixture
def parent():
    return parent_of(Objective("loss", "min"))


def end(parent, trial_id, loss, outcome=Outcome.COMPLETED):
    return parent.record_end(trial_id, {"lr": loss}, outcome, {"loss": loss})


def test_of_equally_good_trials_the_first_is_the_best_at_the_end_whichever_ended_first(parent):
    end(parent, "b", 1.0)
    end(parent, "a", 1.0)
    assert parent.best.trial_id == "b"
    trials = [
        Trial("scripted", stub=True, trial_id=key, experiment_tag=tag, config={"lr": 1.0})
        for key, tag in (("b", "11_"), ("a", "2_"))
    ]
    outcomes = dict.fromkeys("ab", Outcome.COMPLETED)
    assert parent.end_update(trials, outcomes).tags["tune_tf.best_trial_id"] == "a"


def test_the_live_metrics_are_those_that_changed_and_how_many_ended(parent):
    end(parent, "a", 2.0)
    outcomes = Counter([Outcome.COMPLETED, Outcome.INTERRUPTED])
    first = parent.live_metrics(outcomes, best=True)
    second = parent.live_metrics(outcomes + Counter([Outcome.PRUNED]), best=False)
    best = {"best/loss": 2.0, "loss": 2.0}
    assert first == {"trials/completed": 1.0, **best, "trials/ended": 1.0}
    assert second == {"trials/pruned": 1.0, "trials/ended": 2.0}
    assert list(second)[-1] == "trials/ended"


def test_speed_may_be_the_objective():
    parent = parent_of(Objective("system/rows_per_s", "max"))
    result = {"system/rows_per_s": 9.0}
    assert parent.record_end("a", {}, Outcome.COMPLETED, result)
    metrics = parent.live_metrics(Counter([Outcome.COMPLETED]), best=True)
    assert (metrics["best/system/rows_per_s"], metrics["system/rows_per_s"]) == (9.0, 9.0)


def test_after_a_resume_all_counts_are_logged_at_the_end():
    """MLflow skips a step that it has, so an earlier value may be missing there."""
    first = parent_of(Objective("loss", "min"))
    end(first, "a", 2.0)
    resumed = parent_of(Objective("loss", "min"), state=first.state())
    outcomes = Counter([Outcome.COMPLETED])
    resumed.live_metrics(outcomes, best=False)
    zeros = {f"trials/{each.value}": 0.0 for each in Outcome}
    assert resumed.final_metrics(outcomes) == {**zeros, "trials/completed": 1.0, "loss": 2.0}


def test_a_best_trial_that_ends_again_worse_gives_way_to_the_second_best(parent):
    """As after a resume, for which a trial continued."""
    for trial, value in (("a", 2.0), ("b", 1.0), ("c", 3.0)):
        end(parent, trial, value)
    assert end(parent, "b", 2.5)
    assert parent.best_tags()["tune_tf.best_trial_id"] == "a"
