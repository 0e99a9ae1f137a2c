import optuna
import pytest

from tune_tf.errors import InvalidSettingsError
from tune_tf.searchers.search_settings import enqueue, points_to_params
from tune_tf.space import Choice, Float, Int, SearchSpace
from tune_tf.space.optuna_form import OptunaSpace

SPACE = SearchSpace(
    {
        "optimizer": Choice(["adam", "sgd"]),
        "momentum": Float(0, 0.9, when={"optimizer": "sgd"}),
        "layer": {"units": Int(4, 64)},
        "batch": 32,
        "shape": Choice([(1, 2), (3, 4)]),
    }
)
ADAM = {"optimizer": "adam", "layer": {"units": 8}, "shape": (3, 4)}
SGD = {"optimizer": "sgd", "momentum": 0.5, "layer": {"units": 4}, "shape": [1, 2], "batch": 32}


def test_configs_become_optunas_parameters():
    assert points_to_params(SPACE, [ADAM, SGD]) == [
        {"optimizer": "adam", "layer/units": 8, "shape": "(3, 4)"},
        {"optimizer": "sgd", "momentum": 0.5, "layer/units": 4, "shape": "(1, 2)"},
    ]


def test_all_faults_of_all_points_are_told_at_once():
    wrong = [ADAM | {"momentum": 0.5}, ADAM, {"optimizr": "sgd"}, 3, ADAM | {"batch": 64}]
    with pytest.raises(InvalidSettingsError, match="errors") as caught:
        points_to_params(SPACE, wrong)
    assert [fault.where for fault in caught.value.details] == [
        "points_to_evaluate.0.momentum",
        "points_to_evaluate.2.optimizr",
        "points_to_evaluate.2.optimizer",
        "points_to_evaluate.2.layer.units",
        "points_to_evaluate.2.shape",
        "points_to_evaluate.3",
        "points_to_evaluate.4.batch",
    ]


def test_points_are_asked_for_first_in_order():
    study = optuna.create_study()
    enqueue(study, points_to_params(SPACE, [ADAM, SGD]))
    suggest = OptunaSpace(SPACE)
    first, second = suggest(study.ask()), suggest(study.ask())
    assert (first["optimizer"], first["shape"], first["batch"]) == ("adam", (3, 4), 32)
    assert (second["momentum"], second["layer/units"]) == (0.5, 4)
