"""The result of a sweep as plain data."""

from dataclasses import replace
from pathlib import Path

import pytest

from tune_tf.config import SweepConfig
from tune_tf.errors import CheckpointError, UnknownMetricError
from tune_tf.outcome import Outcome
from tune_tf.results import SweepResult, TrialResult

DONE, STOPPED = Outcome.COMPLETED, Outcome.PRUNED
SETTINGS = {
    "name": "small",
    "workload": "models:Mine",
    "objective": [{"metric": "loss", "mode": "min"}, {"metric": "accuracy", "mode": "max"}],
    "space": {"width": {"int": [1, 9]}},
    "budget": {"num_samples": 4},
}


def trial(number, loss, accuracy=0.5, outcome=DONE, **more):
    metrics = {"loss": loss, "accuracy": accuracy}
    return TrialResult(f"t{number}", number, {"width": number}, outcome, metrics=metrics, **more)


def result(*trials):
    config = SweepConfig.from_dict(SETTINGS)
    return SweepResult("small-1", Path("sweeps/small-1"), config, Path(), trials)


def test_a_result_is_shown_in_one_line_without_its_settings():
    assert (
        repr(result(trial(0, 0.25))) == "SweepResult('small-1', 1 trial, best loss 0.25 by trial 0)"
    )
    assert repr(result()) == "SweepResult('small-1', 0 trials)"


def test_without_a_best_trial_the_causes_of_failures_are_given_without_secrets():
    broken = [
        TrialResult("t0", 0, {}, Outcome.ERROR, cause="OSError: no file"),
        TrialResult("t1", 1, {}, Outcome.OOM, cause="OOM at https://me:hunter22@host/data"),
        TrialResult("t2", 2, {}, Outcome.ERROR, cause="OSError: no file"),
        TrialResult("t3", 3, {}, Outcome.PRUNED, cause="at rung 1"),
    ]
    assert result(*broken).failures == (
        "2 trials error: OSError: no file",
        "trial 1 oom: OOM at https://me:***@host/data",
    )
    with pytest.raises(UnknownMetricError, match="; 2 trials error: OSError: no file"):
        _ = result(*broken).best_trial


def test_the_table_has_a_row_for_each_trial():
    rows = result(trial(0, 0.3), trial(1, 0.2, feasible=False)).dataframe()
    assert list(rows["config/width"]) == [0, 1]
    assert list(rows["feasible"]) == [True, False]
    assert list(rows["outcome"]) == ["completed", "completed"]


def test_a_best_trial_without_a_checkpoint_says_so():
    with pytest.raises(CheckpointError, match="trial t0 has no checkpoint"):
        _ = result(trial(0, 0.3)).best_checkpoint


@pytest.mark.parametrize(("outcome", "interrupted"), [(None, True), (DONE, False)])
def test_a_sweep_with_a_trial_that_has_not_ended_was_interrupted(outcome, interrupted):
    assert result(trial(0, 0.3, outcome=outcome)).interrupted is interrupted


def test_a_sweep_with_trials_that_were_not_asked_for_was_interrupted():
    assert replace(result(trial(0, 0.3)), search_finished=False).interrupted
