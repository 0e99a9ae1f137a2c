"""Settings of a final model, refused before anything is looked up."""

import pytest

from tune_tf.errors import InvalidSettingsError
from tune_tf.sweep.model.retrain import retrain_trial


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"on": "train+validaton"}, r"on must be one of .* did you mean 'train\+validation'"),
        ({"num_replicas": 0}, "num_replicas must be at least 1, not 0"),
        ({"num_epochs": -1}, "num_epochs must be at least 1, not -1"),
    ],
    ids=["misspelt rows", "no replicas", "negative epochs"],
)
def test_wrong_settings_of_a_final_model_are_told_first(given, told):
    with pytest.raises(InvalidSettingsError, match=told):
        retrain_trial("no-such-sweep", **given)
