"""Comparison of a sweep's trial states in Tune, Optuna and MLflow."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tune_tf.outcome import CONFIG_CHANGED_AT, STOP_REASON, Outcome
from tune_tf.searchers.trial_attrs import tune_trial_id
from tune_tf.tracking.writing.run_update import STOP_REASON_TAG, TRIAL_ID_TAG

if TYPE_CHECKING:
    import mlflow
    import optuna
    from ray.tune.experiment import Trial


@dataclass(frozen=True)
class TrialStates:
    """State of a trial in Tune, Optuna and MLflow.

    Args:
        reason: Stop reason in the run's tag.
        optuna_reason: Stop reason in the Optuna trial's user attribute.
        curve: MLflow's values of the metric, by step.
        optuna_values: Optuna's values of the metric, by step.
        changed_at: Last step with the suggested config if the scheduler changed it; the trial then
            continued from another trial's checkpoint.
    """

    tune: str
    optuna: str
    mlflow: str
    reason: str | None
    optuna_reason: str | None
    curve: Mapping[int, float]
    optuna_values: Mapping[int, float]
    changed_at: int | None = None

    @property
    def outcome(self) -> Outcome:
        """Outcome in the run's tag."""
        return Outcome(self.reason or "")


def trial_states(
    trials: Iterable["Trial"],
    study: "optuna.Study",
    client: "mlflow.MlflowClient",
    experiment_name: str,
    metric: str,
) -> dict[str, TrialStates]:
    """Return the states of each trial by Tune's id; assert that each system has it once.

    Trials are those of ``tune.run(...).trials``; the MLflow experiment must have no other sweep.
    """
    attrs = study.user_attrs
    optuna_trials = {str(tune_trial_id(trial, attrs)): trial for trial in study.trials}
    assert len(optuna_trials) == len(study.trials), "a trial is in Optuna twice"
    experiment = client.get_experiment_by_name(experiment_name)
    runs = [
        run
        for run in client.search_runs([experiment.experiment_id], max_results=10_000)
        if TRIAL_ID_TAG in run.data.tags
    ]
    run_of = {run.data.tags[TRIAL_ID_TAG]: run for run in runs}
    assert len(run_of) == len(runs), "a trial is in MLflow twice"
    statuses = {trial.trial_id: trial.status for trial in trials}
    assert statuses.keys() == optuna_trials.keys() == run_of.keys(), "a trial is missing somewhere"
    states = {}
    for trial_id, status in statuses.items():
        optuna_trial, run = optuna_trials[trial_id], run_of[trial_id]
        states[trial_id] = TrialStates(
            tune=status,
            optuna=optuna_trial.state.name,
            mlflow=run.info.status,
            reason=run.data.tags.get(STOP_REASON_TAG),
            optuna_reason=optuna_trial.user_attrs.get(STOP_REASON),
            curve=_curve(client, run, metric),
            optuna_values=dict(optuna_trial.intermediate_values),
            changed_at=optuna_trial.user_attrs.get(CONFIG_CHANGED_AT),
        )
    return states


def assert_consistent_states(states: Mapping[str, TrialStates]) -> None:
    """Assert that every trial has ended with the same outcome in all systems."""
    for trial_id, state in states.items():
        outcome = state.outcome
        actual = (state.tune, state.optuna, state.mlflow)
        expected = (outcome.tune, outcome.optuna, outcome.mlflow)
        assert actual == expected, f"{trial_id}, which is {outcome.value}, is recorded as {actual}"
        assert state.optuna_reason == state.reason, f"{trial_id} ended in two ways: {state}"
        last = state.changed_at or max(state.curve, default=0)
        steps = sorted(step for step in state.curve if step <= last)
        assert steps == list(range(1, last + 1)), f"{trial_id} has steps {steps} up to {last}"
        other_values = dict(state.optuna_values.items() - state.curve.items())
        assert not other_values, f"{trial_id} reached Optuna with {other_values}, never reported"
        if outcome is Outcome.PRUNED:
            assert state.optuna_values, f"{trial_id} was pruned without a value"


def _curve(client: Any, run: Any, metric: str) -> dict[int, float]:
    history = client.get_metric_history(run.info.run_id, metric)
    curve = {point.step: point.value for point in history}
    assert len(curve) == len(history), f"{metric} of run {run.info.run_id} has a step twice"
    return curve
