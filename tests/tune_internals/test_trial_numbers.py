"""Numbers of trials."""

from ray.tune.experiment import Trial

from tune_tf.tune_internals.trial_state import trial_number


def test_a_choice_that_contains_an_at_sign_leaves_the_number():
    assert trial_number(Trial("scripted", stub=True, experiment_tag="3_user=me@here.org")) == 2
