"""Several objectives, constraints and links of trials in a study."""

import math

import pytest

from tune_tf.errors import SweepConflictError, UnknownMetricError
from tune_tf.objective import Objective
from tune_tf.space import Float, Int, SearchSpace

LOSS, SPEED = Objective("loss", "min"), Objective("speed", "max")
SPACE = SearchSpace({"rate": Float(1e-4, 1e-1, log=True), "units": Int(4, 64)})


def make(objective=(LOSS, SPEED), space=SPACE, **settings):
    from tune_tf.searchers import OptunaSearcher

    return OptunaSearcher(space, objective, **{"seed": 7, "sampler": "random", **settings})


def result(iteration, loss=0.5, speed=2.0, **more):
    return {"training_iteration": iteration, "loss": loss, "speed": speed, **more}


def run(searcher, trial_id, *results, reason="completed"):
    searcher.suggest(trial_id)
    for each in results[:-1]:
        searcher.on_trial_result(trial_id, each)
    searcher.on_trial_complete(
        trial_id, results[-1] | {"done": True, "stop_reason": reason} if results[-1] else None
    )
    return searcher.study.trials[-1]


@pytest.mark.parametrize("speed", [math.nan, math.inf, None])
def test_a_second_objective_that_is_not_finite_fails_the_trial(speed):
    trial = run(make(), "a", result(1), result(2, speed=speed))
    assert trial.state.name == "FAIL"
    assert trial.user_attrs["stop_cause"] == f"speed is {speed} at iteration 2"
    assert trial.intermediate_values == {1: 0.5, 2: 0.5}


def test_another_metric_of_the_same_direction_is_refused(tmp_path):
    settings = {"storage": tmp_path / "s.journal", "study_name": "s"}
    make(LOSS, **settings)
    expected = "exists with the objective min loss, not min val_loss"
    with pytest.raises(SweepConflictError, match=expected):
        make(Objective("val_loss", "min"), **settings)


@pytest.mark.parametrize(("size", "violation"), [(12, 2.0), (8, -2.0), (math.nan, 10.0)])
@pytest.mark.parametrize("reason", ["completed", "pruned"])
def test_by_how_much_a_constraint_is_broken_is_told(size, violation, reason):
    searcher = make(LOSS, constraints={"size": "<= 10"})
    trial = run(searcher, "a", result(1, size=1), result(2, size=size), reason=reason)
    assert trial.constraints == {"size <= 10": violation}


@pytest.mark.parametrize(
    ("constraints", "far_beyond"),
    [({"size": "<= 0.5"}, False), (None, True)],
    ids=["constrained", "unconstrained"],
)
def test_a_constrained_search_stays_where_it_is_feasible(constraints, far_beyond):
    space = SearchSpace({"x": Float(0, 1)})
    searcher = make(LOSS, space, sampler="tpe", constraints=constraints)
    configs = []
    for number in range(60):
        config = searcher.suggest(str(number))
        configs.append(config["x"])
        last = {"training_iteration": 1, "loss": -config["x"], "size": config["x"]}
        searcher.on_trial_complete(str(number), last | {"stop_reason": "completed"})
    num_beyond = sum(x > 0.7 for x in configs[-30:])
    assert (num_beyond > 20, num_beyond < 4) == (far_beyond, not far_beyond)


@pytest.mark.parametrize("hook", ["result", "complete"])
@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"objective": [LOSS, Objective("sped", "max")]}, r"metric 'sped'; did you mean 'speed'\?"),
        (
            {"objective": LOSS, "constraints": {"size": "<= 3"}},
            "'size' of the constraint size <= 3",
        ),
    ],
    ids=["objective", "constraint"],
)
def test_a_missing_metric_ends_the_sweep_at_the_first_result(hook, settings, match):
    searcher = make(**settings)
    searcher.suggest("a")
    call = searcher.on_trial_result if hook == "result" else searcher.on_trial_complete
    with pytest.raises(UnknownMetricError, match=f"{match}.*the trial reports loss, speed"):
        call("a", result(1))


def test_a_trial_is_linked_and_explained():
    searcher = make(LOSS)
    last = result(4, mlflow_run_id="r1", time_total_s=2.5, stop_cause="a better one was found")
    trial = run(searcher, "a", result(1), last, reason="pruned")
    assert trial.user_attrs == {
        "tune_trial_id": "a",
        "mlflow_run_id": "r1",
        "seconds": 2.5,
        "epochs": 4,
        "stop_reason": "pruned",
        "stop_cause": "a better one was found",
    }


def test_what_follows_a_changed_config_is_not_held_to_the_first_config():
    searcher = make()
    after = {"config_changed_at": 2}
    trial = run(
        searcher,
        "a",
        result(1, 0.5),
        result(2, 0.4, 3.0),
        result(3, 0.1) | after,
        result(4, 0.01) | after,
    )
    assert trial.intermediate_values == {1: 0.5, 2: 0.4}
    assert (trial.state.name, trial.values) == ("COMPLETE", [0.4, 3.0])
    assert trial.user_attrs["config_changed_at"] == 2
    assert trial.user_attrs["epochs"] == 4


def test_earlier_results_are_no_trials_of_this_sweep(tmp_path):
    earlier = make(LOSS, storage=tmp_path / "old.journal", study_name="old")
    for number in range(3):
        run(earlier, str(number), result(1), result(2))
    settings = {"storage": tmp_path / "new.journal", "study_name": "new"}
    warm = make(LOSS, warm_start_from=tmp_path / "old.journal", **settings)
    assert warm.warm_start.num_imported == 3
    warm.suggest("a")
    again = make(LOSS, warm_start_from=tmp_path / "old.journal", **settings)
    again.suggest("b")
    states = [trial.state.name for trial in again.study.trials]
    assert states == ["COMPLETE"] * 3 + ["RUNNING"] * 2
    assert "tune_trial_id" not in again.study.trials[0].user_attrs


@pytest.mark.parametrize(("sampler", "told"), [("random", True), ("tpe", False)])
def test_a_sampler_that_makes_nothing_of_constraints_is_told_of(sampler, told, caplog):
    make(LOSS, sampler=sampler, constraints={"speed": ">= 1"})
    assert ("ignores constraints: speed >= 1" in caplog.text) is told
