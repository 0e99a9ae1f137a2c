"""Comparison of a trial's states in Tune, Optuna and MLflow."""

from collections.abc import Mapping
from dataclasses import dataclass

from tune_tf.outcome import Outcome


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
