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
        tune: Tune's status.
        optuna: Name of Optuna's state.
        mlflow: MLflow's status of the run.
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
    proposed = {str(tune_trial_id(trial, attrs)): trial for trial in study.trials}
    assert len(proposed) == len(study.trials), "a trial is in Optuna twice"
    experiment = client.get_experiment_by_name(experiment_name)
    runs = [
        run
        for run in client.search_runs([experiment.experiment_id], max_results=10_000)
        if TRIAL_ID_TAG in run.data.tags
    ]
    tracked = {run.data.tags[TRIAL_ID_TAG]: run for run in runs}
    assert len(tracked) == len(runs), "a trial is in MLflow twice"
    known = {trial.trial_id: trial for trial in trials}
    assert known.keys() == proposed.keys() == tracked.keys(), "a trial is missing from a system"
    return {
        trial_id: TrialStates(
            tune=trial.status,
            optuna=proposed[trial_id].state.name,
            mlflow=tracked[trial_id].info.status,
            reason=tracked[trial_id].data.tags.get(STOP_REASON_TAG),
            optuna_reason=proposed[trial_id].user_attrs.get(STOP_REASON),
            curve=_curve(client, tracked[trial_id], metric),
            optuna_values=dict(proposed[trial_id].intermediate_values),
            changed_at=proposed[trial_id].user_attrs.get(CONFIG_CHANGED_AT),
        )
        for trial_id, trial in known.items()
    }


def assert_consistent_states(states: Mapping[str, TrialStates]) -> None:
    """Assert that every trial has ended with the same outcome in all systems."""
    for trial_id, state in states.items():
        outcome = state.outcome
        found = (state.tune, state.optuna, state.mlflow)
        wanted = (outcome.tune, outcome.optuna, outcome.mlflow)
        assert found == wanted, f"{trial_id}, which is {outcome.value}, is recorded as {found}"
        assert state.optuna_reason == state.reason, f"{trial_id} ended in two ways: {state}"
        last = state.changed_at or max(state.curve, default=0)
        steps = sorted(step for step in state.curve if step <= last)
        assert steps == list(range(1, last + 1)), f"{trial_id} has steps {steps} up to {last}"
        wrong = {
            step: value
            for step, value in state.optuna_values.items()
            if state.curve.get(step) != value
        }
        assert not wrong, f"{trial_id} reached Optuna with {wrong}, but reported otherwise"
        if outcome is Outcome.PRUNED:
            assert state.optuna_values, f"{trial_id} was pruned without a value"


def _curve(client: Any, run: Any, metric: str) -> dict[int, float]:
    history = client.get_metric_history(run.info.run_id, metric)
    curve = {point.step: point.value for point in history}
    assert len(curve) == len(history), f"{metric} of run {run.info.run_id} has a step twice"
    return curve
