import math

import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages import InMemoryStorage
from optuna.trial import TrialState, create_trial

from tune_tf.errors import InvalidSettingsError
from tune_tf.objective import Objective
from tune_tf.outcome import Outcome
from tune_tf.record import Record
from tune_tf.searchers.criteria import SearchCriteria
from tune_tf.searchers.study_storage import open_storage, open_study
from tune_tf.searchers.warm_start import WarmStart, import_trials
from tune_tf.space import Choice, Float, Int, SearchSpace

GOALS = SearchCriteria((Objective("loss", "min"),))
SPACE = SearchSpace(
    {
        "optimizer": Choice(["adam", "sgd"]),
        "momentum": Float(0, 0.9, when={"optimizer": "sgd"}),
        "units": Int(4, 64),
        "shape": Choice([(1, 2), (3, 4)]),
        "batch": 32,
    }
)
DISTRIBUTIONS = {
    "optimizer": CategoricalDistribution(["adam", "sgd", "lion"]),
    "momentum": FloatDistribution(0, 0.99),
    "units": IntDistribution(1, 128),
    "shape": CategoricalDistribution(["(1, 2)", "(3, 4)"]),
    "other": FloatDistribution(0, 1),
}
GOOD = {"optimizer": "adam", "units": 8, "shape": "(1, 2)"}


def trial_of(params, state=TrialState.COMPLETE, value=0.5, curve=(), **more):
    return create_trial(
        state=state,
        params=params,
        distributions={path: DISTRIBUTIONS[path] for path in params},
        value=value if state is TrialState.COMPLETE else None,
        intermediate_values=dict(curve),
        **more,
    )


@pytest.fixture
def journal(tmp_path):
    return tmp_path / "study.journal"


def earlier(journal, *trials, name="old", criteria=GOALS):
    study = open_study(open_storage(journal), name, criteria)
    study.add_trials(trials)
    return study


def fresh(criteria=GOALS):
    return open_study(InMemoryStorage(), "new", criteria)


def take(study, start, criteria=GOALS, **settings):
    return import_trials(study, SPACE, criteria, start.read(criteria), "there", **settings)


def taken_from(journal, criteria=GOALS):
    study = fresh(criteria)
    return study, take(study, WarmStart(journal), criteria)


def test_a_sampler_that_sees_inactive_parameters_is_given_values_for_them(journal):
    earlier(journal, trial_of(GOOD, value=0.25))
    study = fresh()
    take(study, WarmStart(journal), dense=True)
    (trial,) = study.trials
    assert trial.params.keys() == SPACE.distributions().keys()
    assert GOOD.items() <= trial.params.items()
    assert trial.distributions == SPACE.distributions()


def test_trials_become_evaluated_trials_of_the_new_space(journal):
    earlier(
        journal,
        trial_of(GOOD, value=0.25, curve={1: 0.5, 2: 0.25}, user_attrs={"tune_trial_id": "a"}),
        trial_of(GOOD | {"optimizer": "sgd", "momentum": 0.5}, TrialState.PRUNED, curve={1: 0.75}),
    )
    earlier(journal, *(trial_of(GOOD, state) for state in (TrialState.FAIL, TrialState.RUNNING)))
    study, taken = taken_from(journal)
    first, second = study.trials
    assert (first.state.name, first.value, first.intermediate_values) == (
        "COMPLETE",
        0.25,
        {1: 0.5, 2: 0.25},
    )
    assert (second.state.name, second.value, second.params["momentum"]) == ("PRUNED", 0.75, 0.5)
    assert first.distributions["units"] == IntDistribution(4, 64)
    assert first.user_attrs == {"warm_start": str(journal), "warm_start_key": "0"}
    assert (taken.num_imported, taken.skipped) == (2, {})


@pytest.mark.parametrize(
    ("trial", "reason"),
    [
        (trial_of(GOOD | {"optimizer": "lion"}), "their optimizer must be one of 'adam', 'sgd'"),
        (trial_of(GOOD | {"units": 100}), "their units must be an integer from 4 to 64"),
        (trial_of(GOOD | {"other": 0.5}), "their other is not a parameter"),
        (trial_of(GOOD | {"momentum": 0.5}), "their momentum is inactive"),
        (trial_of(GOOD | {"optimizer": "sgd"}), "their momentum is missing"),
        (trial_of({"optimizer": "adam", "units": 8}), "their shape is missing"),
        (trial_of(GOOD, TrialState.PRUNED), "they were stopped before a value of loss"),
        (
            trial_of(GOOD, TrialState.PRUNED, curve={1: math.nan}),
            "they were stopped before a value of loss",
        ),
    ],
    ids=["option", "range", "unknown", "inactive", "missing", "absent", "no curve", "nan"],
)
def test_a_trial_that_the_space_does_not_hold_is_left_out_with_the_reason(journal, trial, reason):
    earlier(journal, trial, trial_of(GOOD))
    study, taken = taken_from(journal)
    assert len(study.trials) == taken.num_imported == 1
    assert taken.skipped == {reason: 1}


def test_a_source_is_read_once(journal):
    earlier(journal, trial_of(GOOD), trial_of(GOOD))
    study, taken = taken_from(journal)
    again = take(study, WarmStart(journal))
    assert (again.num_imported, len(study.trials)) == (taken.num_imported, 2)


def test_constraints_come_along_and_trials_without_them_are_left_out(journal):
    criteria = SearchCriteria.of(Objective("loss", "min"), {"size": "<= 10"})
    constrained = trial_of(GOOD)
    constrained.set_constraint("size <= 10", 2.5)
    earlier(journal, constrained, trial_of(GOOD))
    study, taken = taken_from(journal, criteria=criteria)
    [trial] = study.trials
    assert trial.constraints == {"size <= 10": 2.5}
    assert taken.skipped == {"they do not report all constrained metrics": 1}


REFUSED = {
    "direction": ("study.journal#max", "objective is max acc, this one's is min loss"),
    "metric": ("study.journal#val", "objective is min val_loss, this one's is min"),
    "several": ("study.journal", "available: 'max', 'val'"),
    "no journal": ("nowhere/study.journal", "there is none"),
    "empty folder": ("empty", "there is no record of a sweep in it"),
    "no form": ("nowhere", "must be a sweep's folder, a journal file, a database URL or mlflow:"),
    "database": ("sqlite:////nowhere/at/all.db", "cannot be opened as a database"),
    "nothing": ("", "warm_start_from"),
    "no experiment": ("mlflow:", "warm_start_from"),
    "no text": (3, "warm_start_from"),
}


@pytest.mark.parametrize(("source", "match"), REFUSED.values(), ids=REFUSED)
def test_a_source_that_cannot_be_meant_is_refused(source, match, journal, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    earlier(journal, name="max", criteria=SearchCriteria((Objective("acc", "max"),)))
    earlier(journal, name="val", criteria=SearchCriteria((Objective("val_loss", "min"),)))
    with pytest.raises(InvalidSettingsError, match=match):
        taken_from(source)


def recorded(folder, config, results, outcome, cause=None):
    """Add a trial to the record of a sweep."""
    with Record(folder) as record:
        number = len(record.history.trials)
        record.begin_session()
        tag, trial_id = str(number + 1), f"t{number}"
        record.record_creation(trial_id, number, config, name=f"trial_{number:05d}", tag=tag)
        for result in results:
            record.record_result(number, result)
        if outcome:
            record.record_end(trial_id, outcome, cause)


def test_trials_of_the_record_of_a_sweep_are_taken(tmp_path):
    criteria = SearchCriteria.of(Objective("a/loss", "min"), {"size": "<= 10"})
    config = {"optimizer": "adam", "units": 8, "shape": (1, 2), "batch": 32}
    results = [
        {"training_iteration": 1, "a": {"loss": 0.5}, "size": 4},
        {"training_iteration": 2, "a": {"loss": 0.25}, "size": 12, "kept/a/loss": 0.5},
    ]
    without = [{"training_iteration": 1, "a": {"loss": 0.5}}]
    recorded(tmp_path, config, results, Outcome.COMPLETED)
    recorded(tmp_path, config, results[:1], Outcome.PRUNED)
    recorded(tmp_path, config, results, Outcome.ERROR)
    recorded(tmp_path, config, results, Outcome.INTERRUPTED)
    recorded(tmp_path, config, results, None)
    recorded(tmp_path, config | {"batch": 64}, results, Outcome.COMPLETED)
    recorded(tmp_path, config, without, Outcome.COMPLETED)
    study, taken = taken_from(tmp_path, criteria=criteria)
    first, second = study.trials
    assert first.params == second.params == GOOD
    assert (first.values, first.intermediate_values) == ([0.5], {1: 0.5, 2: 0.25})
    assert (second.state.name, second.intermediate_values) == ("PRUNED", {1: 0.5})
    assert [trial.constraints["size <= 10"] for trial in study.trials] == [2.0, -6.0]
    assert first.user_attrs == {"warm_start": str(tmp_path), "warm_start_key": "0"}
    assert taken.skipped == {
        "their batch must be 32": 1,
        "they do not report all constrained metrics": 1,
    }


@pytest.fixture
def tracked(tmp_path):
    """An MLflow experiment with the runs of one sweep."""
    from mlflow import MlflowClient
    from mlflow.entities import Metric

    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    client = MlflowClient(uri)
    experiment = client.create_experiment("digits", artifact_location=str(tmp_path))
    parent = client.create_run(experiment).info.run_id

    def run(params, losses, status, size=5.0):
        made = client.create_run(experiment, tags={"mlflow.parentRunId": parent}).info.run_id
        for name, value in params.items():
            client.log_param(made, name, value)
        points = [Metric("loss", loss, 0, step) for step, loss in enumerate(losses, 1)]
        speed = Metric("system/rows_per_s", 10 * losses[-1], 0, len(losses))
        client.log_batch(made, [*points, speed, Metric("size", size, 0, 1)])
        client.set_terminated(made, status)
        return made

    adam = {"optimizer": "adam", "units": "8", "shape": "(1, 2)", "batch": "32"}
    runs = [
        run(adam, [0.5, 0.25], "FINISHED"),
        run(adam | {"optimizer": "sgd", "momentum": "0.5"}, [0.75], "KILLED", size=20.0),
        run(adam | {"batch": "64"}, [0.5], "FINISHED"),
        run(adam | {"units": "many"}, [0.5], "FINISHED"),
        run(adam, [math.nan], "FAILED"),
    ]
    client.set_terminated(parent)
    return uri, runs


@pytest.mark.slow
def test_runs_of_an_mlflow_experiment_are_taken(tracked):
    uri, runs = tracked
    criteria = SearchCriteria.of(Objective("loss", "min"), {"size": "<= 10"})
    study = fresh(criteria)
    taken = take(study, WarmStart("mlflow:digits", uri), criteria)
    first, second = study.trials
    assert first.params == {"optimizer": "adam", "units": 8, "shape": "(1, 2)"}
    assert (first.value, first.intermediate_values) == (0.25, {1: 0.5, 2: 0.25})
    assert (second.state.name, second.value, second.params["momentum"]) == ("PRUNED", 0.75, 0.5)
    assert [trial.constraints["size <= 10"] for trial in study.trials] == [-5.0, 10.0]
    assert [trial.user_attrs["warm_start_key"] for trial in study.trials] == runs[:2]
    by_speed = SearchCriteria.of(Objective("system/rows_per_s", "max"), {})
    study = fresh(by_speed)
    take(study, WarmStart("mlflow:digits", uri), by_speed)
    assert (study.trials[0].value, study.trials[0].intermediate_values) == (2.5, {2: 2.5})
    assert taken.skipped == {
        "their batch must be 32": 1,
        "their units must be an integer from 4 to 64": 1,
    }
    with pytest.raises(InvalidSettingsError, match=r"'mlflow:digit' at .* did you mean 'digits'"):
        take(fresh(criteria), WarmStart("mlflow:digit", uri), criteria)
