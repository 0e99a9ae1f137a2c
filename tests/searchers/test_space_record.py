import logging

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution

from tune_tf.errors import SweepConflictError
from tune_tf.searchers.space_record import (
    SEARCH_SPACE,
    check_space,
    text_by_path,
)
from tune_tf.space import Choice, Float, Int, SearchSpace

OLD = SearchSpace(
    {
        "rate": Float(1e-4, 1e-1, log=True),
        "optimizer": Choice(["adam", "sgd"]),
        "momentum": Float(0, 0.9, when={"optimizer": "sgd"}),
        "layer": {"units": Int(4, 64)},
        "batch": 32,
        "shape": Choice([(1, 2), (3, 4)]),
    }
)


def with_(**changes):
    parameters = {**OLD.parameters, **changes}
    return SearchSpace({path: each for path, each in parameters.items() if each is not None})


@pytest.fixture
def study():
    study = optuna.create_study(study_name="s", sampler=optuna.samplers.RandomSampler(seed=1))
    check_space(study, OLD, allow_changed=False)
    for _ in range(4):
        OLD.to_optuna()(study.ask())
    return study


def test_a_study_keeps_its_space_as_text(study):
    assert study.user_attrs[SEARCH_SPACE] == {
        "rate": '{"loguniform": [0.0001, 0.1]}',
        "optimizer": '{"choice": ["adam", "sgd"]}',
        "momentum": '{"uniform": [0.0, 0.9], "when": {"optimizer": "sgd"}}',
        "layer/units": '{"int": [4, 64]}',
        "batch": '{"constant": 32}',
        "shape": '{"choice": ["(1, 2)", "(3, 4)"]}',
    }


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"dropout": Float(0, 0.5)}, '  + dropout: {"uniform": [0.0, 0.5]}'),
        ({"layer/units": None}, '  - layer.units: {"int": [4, 64]}'),
        ({"rate": Float(1e-4, 1)}, '  ~ rate: {"loguniform": [0.0001, 0.1]} -> {"uniform"'),
        ({"batch": 64}, '  ~ batch: {"constant": 32} -> {"constant": 64}'),
        ({"batch": Int(32, 64)}, '  ~ batch: {"constant": 32} -> {"int": [32, 64]}'),
        ({"momentum": Float(0, 0.9)}, '  ~ momentum: {"uniform": [0.0, 0.9], "when"'),
    ],
    ids=["added", "removed", "scale", "constant", "kind", "condition"],
)
def test_a_changed_space_is_refused_with_what_changed(study, changes, line):
    with pytest.raises(SweepConflictError, match="another search space") as caught:
        check_space(study, with_(**changes), allow_changed=False)
    assert line in str(caught.value)
    assert "set allow_changed_space" in str(caught.value)


def test_a_changed_space_that_is_allowed_is_kept_and_logged_once(study, caplog):
    new = with_(rate=Float(1e-3, 1e-1, log=True), dropout=Float(0, 0.5))
    with caplog.at_level(logging.WARNING):
        check_space(study, new, allow_changed=True)
        check_space(study, new, allow_changed=True)
    [record] = caplog.records
    assert "~ rate" in record.getMessage()
    assert study.user_attrs[SEARCH_SPACE] == text_by_path(new)
    assert set(new.to_optuna()(study.ask())) >= {"dropout", "rate"}


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"optimizer": Choice(["adam", "sgd", "lion"])}, "optimizer: other options"),
        ({"layer/units": Float(4, 64)}, "layer.units: other kind"),
        ({"rate": Float(1e-4, 1e-1)}, "rate: other kind"),
    ],
    ids=["options", "type", "scale"],
)
def test_what_optuna_cannot_hold_is_refused_even_if_it_is_allowed(study, changes, what):
    with pytest.raises(SweepConflictError, match=f"{what}(.|\n)*warm_start_from"):
        check_space(study, with_(**changes), allow_changed=True)


def test_a_study_that_has_not_kept_its_space_takes_what_optuna_can_hold():
    study = optuna.create_study(study_name="s")
    study.ask({"x": FloatDistribution(0, 1)})
    with pytest.raises(SweepConflictError, match="x: other kind"):
        check_space(study, {"x": FloatDistribution(0.1, 1, log=True)}, allow_changed=False)
    check_space(study, {"x": FloatDistribution(0, 2)}, allow_changed=False)
    assert SEARCH_SPACE in study.user_attrs


def test_a_space_of_distributions_is_compared_too():
    study = optuna.create_study(study_name="s")
    check_space(study, {"x": CategoricalDistribution(["a"])}, allow_changed=False)
    with pytest.raises(SweepConflictError, match=r"\+ y: FloatDistribution"):
        check_space(
            study,
            {"x": CategoricalDistribution(["a"]), "y": FloatDistribution(0, 1)},
            allow_changed=False,
        )
