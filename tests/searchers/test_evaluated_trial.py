"""Points evaluated elsewhere, through the interface of Ray's ``OptunaSearch``."""

import math

import pytest

from tune_tf.errors import InvalidSettingsError
from tune_tf.objective import Objective
from tune_tf.space import Choice, Float, Int, SearchSpace

LOSS = Objective("loss", "min")
TWO = [LOSS, Objective("accuracy", "max")]
SPACE = SearchSpace(
    {
        "optimizer": Choice(["adam", "sgd"]),
        "momentum": Float(0, 0.9, when={"optimizer": "sgd"}),
        "layer": {"units": Int(4, 64)},
        "batch": 32,
    }
)
ADAM = {"optimizer": "adam", "layer": {"units": 64}}
SGD = {"optimizer": "sgd", "momentum": 0.5, "layer/units": 4, "batch": 32}


def by_run(trial):
    trial.suggest_int("layer/units", 4, 64)
    if trial.suggest_categorical("optimizer", ["adam", "sgd"]) == "sgd":
        trial.suggest_float("momentum", 0, 0.9)
    return {"batch": 32}


def make(space=SPACE, objective=LOSS, sampler="random", **settings):
    from tune_tf.searchers import OptunaSearcher

    return OptunaSearcher(space, objective, sampler, **settings)


@pytest.mark.parametrize("space", [SPACE, by_run], ids=["space", "function"])
@pytest.mark.parametrize(
    ("told", "state", "reason", "value", "curve"),
    [
        ({"value": 0.5}, "COMPLETE", "completed", 0.5, {}),
        ({"value": 2, "curve": [4, 3, 2]}, "COMPLETE", "completed", 2.0, {1: 4, 2: 3, 3: 2}),
        (
            {"value": 3, "ended": (False, True), "curve": [4, 3]},
            "PRUNED",
            "pruned",
            3.0,
            {1: 4, 2: 3},
        ),
        ({"value": 3, "ended": (False, True)}, "PRUNED", "pruned", 3.0, {}),
        ({"value": 3, "ended": (True, True)}, "FAIL", "error", None, {}),
        ({"value": None, "ended": (True,)}, "FAIL", "error", None, {}),
        ({"value": math.nan}, "FAIL", "diverged", None, {}),
        ({"value": math.inf, "curve": [4, math.nan]}, "FAIL", "diverged", None, {1: 4}),
    ],
)
def test_a_point_is_in_the_study_as_it_ended(space, told, state, reason, value, curve):
    searcher = make(space)
    for config in (ADAM, SGD):
        searcher.add_evaluated_point(
            config, told["value"], *told.get("ended", ()), intermediate_values=told.get("curve")
        )
    points = searcher.study.trials[-2:]
    assert [point.params for point in points] == [
        {"optimizer": "adam", "layer/units": 64},
        {"optimizer": "sgd", "momentum": 0.5, "layer/units": 4},
    ]
    for point in points:
        assert (point.state.name, point.value, point.intermediate_values) == (state, value, curve)
        assert point.user_attrs["stop_reason"] == reason
        assert "tune_trial_id" not in point.user_attrs


def by_distributions():
    return make(SearchSpace({"layer": {"units": Int(4, 64)}}).distributions())


REFUSED = {
    "range": (make, {"optimizer": "adam", "layer": {"units": 65}}, 0.5, "units"),
    "function": (lambda: make(by_run), {"layer": {"units": 65}}, 0.5, "range|hold"),
    "distributions": (by_distributions, {"layer": {"units": 65}}, 0.5, "units"),
    "constant": (make, {"optimizer": "adam", "layer": {"units": 4}, "batch": 64}, 0.5, "batch"),
    "unknown": (make, {"optimizr": "adam", "layer": {"units": 4}}, 0.5, "optimizr"),
    "no config": (make, 3, 0.5, "must be a config, not 3"),
    "no value": (make, ADAM, None, "value must be a number for loss, not"),
    "text": (make, ADAM, "good", "value must be a number for loss, not"),
    "two values": (make, ADAM, [1.0, 2.0], "value must be a number for loss, not"),
    "one of two": (
        lambda: make(objective=TWO),
        ADAM,
        0.5,
        r"a number for loss and accuracy, not 0\.5",
    ),
}


@pytest.mark.parametrize(("searcher", "config", "value", "match"), REFUSED.values(), ids=REFUSED)
def test_a_point_that_cannot_be_meant_is_refused(searcher, config, value, match):
    with pytest.raises(InvalidSettingsError, match=match):
        searcher().add_evaluated_point(config, value)


@pytest.mark.parametrize(
    ("rewards", "match"),
    [([1.0], "has 1 values for 2 points_to_evaluate"), ([1.0, "x"], "must be a number for loss")],
)
def test_rewards_that_do_not_fit_are_refused_when_made(rewards, match):
    with pytest.raises(InvalidSettingsError, match=match):
        make(points_to_evaluate=[ADAM, SGD], evaluated_rewards=rewards)


def test_a_sampler_learns_from_them():
    space = SearchSpace({"rate": Float(0, 1)})
    searcher = make(space, sampler="tpe", seed=1)
    for step in range(40):
        searcher.add_evaluated_point({"rate": step / 39}, abs(step / 39 - 0.8))
    drawn = [searcher.suggest(str(number))["rate"] for number in range(6)]
    assert all(0.6 < rate <= 1 for rate in drawn)


def test_points_are_neither_run_nor_taken_for_orphans_after_a_restart(tmp_path):
    settings = {"storage": tmp_path / "s.journal", "study_name": "s", "seed": 1}
    searcher = make(**settings)
    searcher.add_evaluated_point(ADAM, 0.5)
    running = searcher.suggest("a")
    assert make(**settings).suggest("b") == running
    again = make(**settings)
    again.save(tmp_path / "state.pkl")
    again.restore(tmp_path / "state.pkl")
    assert [trial.state.name for trial in again.study.trials] == ["COMPLETE", "RUNNING"]


def test_rewards_make_points_to_evaluate_ones_that_were_evaluated_once(tmp_path):
    settings = {"storage": tmp_path / "s.journal", "study_name": "s", "seed": 1}
    for _ in range(2):  # as by a resume
        searcher = make(
            points_to_evaluate=[ADAM, SGD], evaluated_rewards=[0.89, math.nan], **settings
        )
        points = searcher.study.trials[:2]
        assert [(point.state.name, point.value) for point in points] == [
            ("COMPLETE", 0.89),
            ("FAIL", None),
        ]
        assert len(searcher.study.trials) == 2
    assert searcher.suggest("a") != ADAM
