import pytest

from tune_tf.objective import Objective
from tune_tf.outcome import Outcome
from tune_tf.tracking import descriptions
from tune_tf.tracking.descriptions import BestTrial, SweepDetails

ACCURACY = Objective("val_accuracy", "max")


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("FINISHED", "sweep with Ray Tune, finished.** 4 trials (1 completed, 3 pruned), 40 res"),
        (
            "KILLED",
            "interrupted.** 4 trials (1 completed, 3 pruned), 40 results.\n\nResume with `x`",
        ),
        ("RUNNING", "Best so far `val_accuracy`: **0.98125** in `trial_00003`"),
    ],
)
def test_a_sweep_is_told_with_outcomes_best_value_and_how_to_resume(status, expected):
    text = descriptions.sweep_description(
        status,
        {Outcome.COMPLETED: 1, Outcome.PRUNED: 3},
        40,
        SweepDetails(resume_with="x"),
        objective=ACCURACY,
        best=BestTrial("t3", "trial_00003", 0.98125, {"lr": 0.01}),
    )
    assert expected in text
    assert ("Resume with" in text) == (status == "KILLED")


@pytest.mark.parametrize("outcome", Outcome)
def test_every_outcome_of_a_trial_is_told_in_words(outcome):
    text = descriptions.trial_description(outcome, 3, objective=ACCURACY, best=(0.75, 2))
    assert "It ended after 3 iterations." in text
    assert text.endswith("Best `val_accuracy`: **0.75** at iteration 2.")


def test_a_failed_trial_tells_its_cause_as_it_stands():
    text = descriptions.trial_description(Outcome.ERROR, 0, cause="ValueError: ```\n<b>boom</b>")
    assert text.endswith("```\nValueError: '''\n<b>boom</b>\n```")
    assert "It ended" not in text
