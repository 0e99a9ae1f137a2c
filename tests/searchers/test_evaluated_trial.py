"""Points evaluated elsewhere, through the interface of Ray's ``OptunaSearch``."""

import enum
import inspect
import math

import optuna
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


def test_the_signature_is_rays():
    from ray.tune.search import Searcher

    from tune_tf.searchers import OptunaSearcher

    theirs = inspect.signature(Searcher.add_evaluated_point).parameters.values()
    ours = inspect.signature(OptunaSearcher.add_evaluated_point).parameters.values()
    assert [(p.name, p.kind, p.default) for p in ours] == [
        (p.name, p.kind, p.default) for p in theirs
    ]


@pytest.mark.parametrize("space", [SPACE, by_run], ids=["space", "function"])
@pytest.mark.parametrize("when", ["before", "after"])
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
def test_a_point_is_in_the_study_as_it_ended(space, when, told, state, reason, value, curve):
    searcher = make(space)
    if when == "after":
        searcher.set_search_properties("loss", "min", {}, stop={})
        searcher.suggest("a")
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


@pytest.mark.parametrize(
    "space",
    [SPACE, SearchSpace({"layer": {"units": Int(4, 64)}}).distributions(), by_run],
    ids=["space", "distributions", "function"],
)
@pytest.mark.parametrize(
    ("config", "match"),
    [
        ({"optimizer": "adam", "layer": {"units": 65}}, "units|range|hold"),
        ({"optimizer": "adam", "layer": {"units": 4}, "batch": 64}, "batch"),
        ({"optimizr": "adam", "layer": {"units": 4}}, "optimizr|hold"),
        (3, "must be a config, not 3"),
    ],
)
def test_what_the_space_does_not_hold_is_refused(space, config, match):
    with pytest.raises(InvalidSettingsError, match=match):
        make(space).add_evaluated_point(config, 0.5)


@pytest.mark.parametrize("value", [None, "good", [], [1.0, 2.0]])
def test_a_value_that_is_no_number_is_refused(value):
    with pytest.raises(InvalidSettingsError, match="value must be a number for loss, not"):
        make().add_evaluated_point(ADAM, value)


def test_several_objectives_have_several_values():
    searcher = make(objective=TWO)
    searcher.add_evaluated_point(ADAM, [0.5, 0.9], intermediate_values=[0.7, 0.5])
    searcher.add_evaluated_point(SGD, (0.4, 0.8), pruned=True)
    first, second = searcher.study.trials
    assert (first.values, first.intermediate_values) == ([0.5, 0.9], {1: 0.7, 2: 0.5})
    assert (second.values, second.state.name) == ([0.4, 0.8], "PRUNED")
    with pytest.raises(InvalidSettingsError, match=r"a number for loss and accuracy, not 0\.5"):
        searcher.add_evaluated_point(ADAM, 0.5)


def test_an_added_point_breaks_constraints_on_unreported_metrics():
    searcher = make(constraints={"loss": "<= 1", "latency_ms": "<= 3"})
    searcher.add_evaluated_point(ADAM, 0.5)
    [trial] = searcher.study.trials
    assert trial.constraints == {"loss <= 1": -0.5, "latency_ms <= 3": 3.0}


@pytest.mark.parametrize("sampler", ["tpe", "nsga2", "random", "QMCSampler"])
def test_each_sampler_goes_on_with_points_of_a_conditional_space(sampler):
    searcher = make(sampler=sampler, seed=1)
    for index, config in enumerate([ADAM, SGD] * 8):
        curve = [index + 1.0, index / 2]
        searcher.add_evaluated_point(
            config, curve[-1], error=index == 3, pruned=index % 4 == 1, intermediate_values=curve
        )
    assert searcher.suggest("a")["batch"] == 32
    assert len(searcher.study.trials) == 17


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


@pytest.mark.parametrize(
    ("rewards", "match"),
    [([1.0], "has 1 values for 2 points_to_evaluate"), ([1.0, "x"], "must be a number for loss")],
)
def test_rewards_that_do_not_fit_are_refused_when_made(rewards, match):
    with pytest.raises(InvalidSettingsError, match=match):
        make(points_to_evaluate=[ADAM, SGD], evaluated_rewards=rewards)


def test_trials_of_an_earlier_run_can_be_added_as_with_rays_own():
    from ray.tune.experiment import Trial

    def ended(status, config, result):
        trial = Trial("stub", config=config, stub=True)
        trial.set_status(status)
        trial.run_metadata.last_result = result
        return trial

    searcher = make()
    searcher.add_evaluated_trials(
        [
            ended(Trial.TERMINATED, ADAM, {"loss": 0.5, "done": True}),
            ended(Trial.TERMINATED, SGD, {"loss": 0.7, "done": False}),
            ended(Trial.ERROR, SGD, {"loss": 0.6}),
            ended(Trial.TERMINATED, ADAM, {"loss": math.nan, "done": True}),
        ],
        "loss",
    )
    states = [trial.state.name for trial in searcher.study.trials]
    assert states == ["COMPLETE", "PRUNED", "FAIL", "FAIL"]


def test_a_limiter_and_optuna_take_the_same_points():
    from ray.tune.search import ConcurrencyLimiter

    searcher = make(SearchSpace({"rate": Float(0, 1)}))
    ConcurrencyLimiter(searcher, 2).add_evaluated_point({"rate": 0.25}, 0.5)
    study = optuna.create_study()
    study.add_trial(
        optuna.create_trial(
            value=0.5,
            params={"rate": 0.25},
            distributions={"rate": optuna.distributions.FloatDistribution(0, 1)},
        )
    )
    [ours], [theirs] = searcher.study.trials, study.trials
    assert (ours.params, ours.distributions, ours.value) == (
        theirs.params,
        theirs.distributions,
        theirs.value,
    )


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@pytest.mark.parametrize("options", [[Colour.RED, Colour.BLUE], [int, str], [(8, 8), (16,)]])
def test_an_option_is_found_by_the_text_that_mlflow_has_of_it(options):
    from tune_tf.searchers.criteria import SearchCriteria
    from tune_tf.searchers.earlier_trial import EarlierTrial, to_optuna_trial
    from tune_tf.space.optuna_form import stored_value

    space = SearchSpace({"option": Choice(options)})
    config = {"option": str(options[1])}
    earlier = EarlierTrial("run", optuna.trial.TrialState.COMPLETE, config, (1.0,), {}, None)

    trial = to_optuna_trial(earlier, space, SearchCriteria.of(LOSS, None), {})
    assert trial.params == {"option": stored_value(options[1], space.parameters["option"])}
