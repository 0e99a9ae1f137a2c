import pytest

from tune_tf.objective import Objective
from tune_tf.outcome import Outcome
from tune_tf.space import SearchSpace
from tune_tf.tracking import descriptions
from tune_tf.tracking.descriptions import BestTrial, SweepDetails

ACCURACY = Objective("val_accuracy", "max")
BEST = BestTrial("t3", "trial_00003", 0.98125, {"lr": 0.01, "opt": {"name": "a|b"}})


def test_description_of_a_sweep_has_objective_outcomes_and_best_trial():
    outcomes = {Outcome.COMPLETED: 1, Outcome.PRUNED: 2, Outcome.OUT_OF_BUDGET: 1}
    text = descriptions.sweep_description(
        "FINISHED", outcomes, 40, SweepDetails(), objective=ACCURACY, best=BEST
    )
    assert text == (
        "**Hyperparameter sweep with Ray Tune, finished.** Maximizes `val_accuracy`. "
        "4 trials (1 completed, 2 pruned, 1 out of budget), 40 results.\n\n"
        "Best `val_accuracy`: **0.98125** in `trial_00003`\n\n"
        "| parameter | value |\n|---|---|\n| lr | 0.01 |\n| opt/name | a\\|b |"
    )


def test_an_interrupted_sweep_says_how_to_go_on():
    text = descriptions.sweep_description(
        "KILLED", {}, 0, SweepDetails(resume_with="tune-tf resume digits")
    )
    assert "interrupted.**" in text
    assert text.endswith("Resume with `tune-tf resume digits`.")


def test_a_running_sweep_does_not_say_how_to_resume():
    assert "resume" not in descriptions.sweep_description(
        "RUNNING", {}, 0, SweepDetails(resume_with="tune-tf resume digits")
    )


def test_the_space_is_told_as_a_sweep_file_has_it():
    space = SearchSpace.from_dict(
        {
            "optimizer": {"choice": ["adamw", "rmsprop", "sgd"]},
            "momentum": {"uniform": [0.0, 0.99], "when": {"optimizer": ["sgd", "rmsprop"]}},
            "head": {"units": {"int": [8, 64]}},
            "batch_size": 64,
        }
    )
    text = descriptions.sweep_description("RUNNING", {}, 0, SweepDetails(space=space))
    assert text.endswith(
        "Searched:\n\n| parameter | values |\n|---|---|\n"
        "| optimizer | choice adamw, rmsprop, sgd |\n"
        "| momentum | uniform 0.0, 0.99, when optimizer is sgd or rmsprop |\n"
        "| head/units | int 8, 64 |\n"
        "| batch_size | 64 |"
    )


def test_a_long_config_is_cut_and_says_so():
    text = descriptions.markdown_table("value", {f"p{number}": "x" * 500 for number in range(100)})
    assert text.splitlines()[-1] == "| ... | 60 more |"
    assert max(map(len, text.splitlines())) < 250


@pytest.mark.parametrize("outcome", Outcome)
def test_every_outcome_of_a_trial_is_told_in_words(outcome):
    assert descriptions.trial_description(outcome, 3).endswith("It ended after 3 iterations.")


def test_a_stopped_trial_tells_its_rung_and_its_best_value():
    text = descriptions.trial_description(
        Outcome.PRUNED, 9, rung="9", objective=ACCURACY, last=0.5, best=(0.75, 4)
    )
    assert "It ended after 9 iterations, at rung 9." in text
    assert "Best `val_accuracy`: **0.75** at iteration 4; last 0.5." in text


def test_a_trial_that_failed_before_its_first_report_in_another_one_s_state_tells_its_best_value():
    text = descriptions.trial_description(Outcome.ERROR, 0, objective=ACCURACY, best=(0.75, 4))
    assert text.endswith("Best `val_accuracy`: **0.75** at iteration 4.")


def test_a_failed_trial_tells_its_cause_as_it_stands():
    text = descriptions.trial_description(Outcome.ERROR, 0, cause="ValueError: ```\n<b>boom</b>")
    assert text.endswith("```\nValueError: '''\n<b>boom</b>\n```")
    assert "It ended" not in text
