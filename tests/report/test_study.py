"""The study of a sweep that Optuna draws."""

from dataclasses import replace

import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState
from sweeps_on_disk import START_S, Told, sweep_on_disk

from tune_tf.outcome import Outcome
from tune_tf.report.report_data import ReportData
from tune_tf.report.study import study_of


@pytest.fixture
def study(tmp_path):
    """Return the study of told trials and its first objective."""

    def of(*told, **settings):
        data = ReportData.of(sweep_on_disk(tmp_path, told, **settings))
        return study_of(data, data.result.config.objectives)

    return of


def test_a_trial_has_its_number_state_value_curve_and_times(study):
    ended, failed, stopped = study(
        Told([0.5, 0.75]), Told([], Outcome.OOM), Told([0.25], Outcome.PRUNED)
    ).trials
    assert (ended.number, ended.state, ended.value) == (0, TrialState.COMPLETE, 0.75)
    assert ended.intermediate_values == {1: 0.5, 2: 0.75}
    assert ended.datetime_start.timestamp() == START_S
    assert ended.datetime_complete.timestamp() == START_S + 4
    assert (failed.state, stopped.state) == (TrialState.FAIL, TrialState.PRUNED)


def test_a_missing_number_shifts_no_other(tmp_path):
    result = sweep_on_disk(tmp_path, [Told([0.1]), Told([0.2]), Told([0.3])])
    data = ReportData.of(replace(result, trials=(result.trials[0], result.trials[2])))
    trials = study_of(data, [data.objective]).trials
    assert [trial.value for trial in trials] == [0.1, None, 0.3]
    assert trials[1].state is TrialState.WAITING


def test_each_objective_has_its_direction(study):
    objective = [{"metric": "loss", "mode": "min"}, {"metric": "accuracy", "mode": "max"}]
    found = study(Told([0.5], metrics={"accuracy": 0.9}), Told([0.4]), objective=objective)
    assert [each.name for each in found.directions] == ["MINIMIZE", "MAXIMIZE"]
    assert found.trials[0].values == [0.5, 0.9]
    assert found.trials[1].state is TrialState.FAIL


@pytest.mark.parametrize(
    ("parameter", "values", "distribution"),
    [
        ({"loguniform": [1e-4, 1.0]}, [0.01], FloatDistribution(1e-4, 1.0, log=True)),
        ({"uniform": [0, 1]}, [0.5, 1.5], FloatDistribution(0, 1.5)),  # perturbed by PBT
        ({"int": [8, 64]}, [8, 80], IntDistribution(8, 80)),
        ({"int": [8, 64]}, [9.6, 64], FloatDistribution(8, 64)),
        ({"choice": [16, 32]}, [32, 64], CategoricalDistribution([16, 32, 64])),
        ({"choice": [[64, 32], None]}, [[64, 32]], CategoricalDistribution(["[64, 32]", None])),
        (
            {"choice": ["sql://me:hunter2@db", "b"]},
            ["b"],
            CategoricalDistribution(["sql://me:***@db", "b"]),
        ),
    ],
)
def test_a_parameter_has_its_scale_and_reaches_as_far_as_its_values(
    study, parameter, values, distribution
):
    told = [Told([0.1], config={"p": value}) for value in values]
    trials = study(*told, space={"p": parameter, "constant": 3}).trials
    assert trials[0].distributions == {"p": distribution}


def test_an_inactive_parameter_is_missing(study):
    space = {"a": {"choice": ["x", "y"]}, "b": {"uniform": [0, 1], "when": {"a": "x"}}}
    told = [Told([0.1], config={"a": "x", "b": 0.5}), Told([0.1], config={"a": "y", "b": 0.5})]
    assert [set(trial.params) for trial in study(*told, space=space).trials] == [{"a", "b"}, {"a"}]


def test_what_violates_the_constraints_is_marked(study):
    found = study(Told([0.9], feasible=False), Told([0.5]), constraints={"size": "<= 5"})
    assert found.best_trial.number == 1
