"""Which epoch a trial keeps, as a sweep file says."""

import pytest
from sweep_files import MINIMAL

from tune_tf.config import SweepConfig
from tune_tf.errors import InvalidSettingsError


def read(**changes):
    return SweepConfig.from_dict({**MINIMAL, **changes})


def test_a_trial_keeps_its_last_epoch_by_default():
    assert read().keep == "last"
    assert read().keep_best is None


def test_the_best_epoch_is_that_of_the_leading_objective_within_the_constraints():
    objectives = [{"metric": "a", "mode": "min"}, {"metric": "b", "mode": "max"}]
    constraints = {"loss": "<= 2"}
    sweep = read(keep="best", objective=objectives, leading_metric="b", constraints=constraints)
    rule = sweep.keep_best
    assert rule.objective.metric == "b"
    assert rule.constraints == sweep.constraints


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"scheduler": {"name": "pbt"}}, "scheduler 'pbt'"),
        ({"scheduler": {"name": "pb2"}}, "scheduler 'pb2'"),
    ],
    ids=["pbt", "pb2"],
)
def test_what_cannot_keep_the_best_epoch_is_refused(changes, expected):
    text = f"keep: best does not work with .*{expected}.* write `keep: last`"
    with pytest.raises(InvalidSettingsError, match=text):
        read(keep="best", **changes)
    assert read(keep="last", **changes).keep == "last"


@pytest.mark.parametrize(
    "scheduler",
    [
        {"name": "fifo"},
        {"name": "asha"},
        {"name": "freeze_thaw"},
        {"name": "MedianStoppingRule", "hard_stop": False},
    ],
    ids=lambda scheduler: scheduler["name"],
)
def test_other_schedulers_allow_it(scheduler):
    assert read(keep="best", scheduler=scheduler).keep_best is not None


def test_an_unknown_word_is_refused_with_the_known_ones():
    with pytest.raises(InvalidSettingsError, match="keep: must be 'best' or 'last', not 'first'"):
        read(keep="first")
