import optuna
import pytest

from tune_tf.errors import SweepConflictError
from tune_tf.searchers.space_record import (
    SEARCH_SPACE,
    check_space,
)
from tune_tf.space import Choice, Float, Int, SearchSpace
from tune_tf.space.optuna_form import OptunaSpace

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
    check_space(study, OLD)
    for _ in range(4):
        OptunaSpace(OLD)(study.ask())
    return study


def test_a_study_keeps_its_space_as_text(study):
    assert study.user_attrs[SEARCH_SPACE] == {
        "rate": '{"loguniform": [0.0001, 0.1]}',
        "optimizer": '{"choice": ["adam", "sgd"]}',
        "momentum": '{"uniform": [0.0, 0.9], "when": {"optimizer": ["sgd"]}}',
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
        check_space(study, with_(**changes))
    assert line in str(caught.value)
    assert "another study_name with warm_start_from" in str(caught.value)


def test_a_study_that_has_not_kept_its_space_keeps_it_from_now_on():
    study = optuna.create_study(study_name="s")
    check_space(study, OLD)
    check_space(study, OLD)
    assert study.user_attrs[SEARCH_SPACE].keys() == OLD.parameters.keys()
