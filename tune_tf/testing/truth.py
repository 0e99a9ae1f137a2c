"""What Tune, Optuna and MLflow say of the trials of a sweep, side by side."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tune_tf.outcome import CONFIG_CHANGED_AT, STOP_REASON, Outcome
from tune_tf.searchers.trial_attrs import tune_trial_id
from tune_tf.tracking.writing.run_update import STOP_REASON_TAG, TRIAL_ID

if TYPE_CHECKING:
    import mlflow
    import optuna
    from ray.tune.experiment import Trial


@dataclass(frozen=True)
class TrialStates:
    """One trial in the three systems.

    Args:
        tune: Tune's status of it.
        optuna: Name of Optuna's state of it.
        mlflow: MLflow's status of its run.
        reason: What the run's tag says of its end.
        told: What the Optuna trial's user attribute says of its end.
        curve: The metric by step, as MLflow has it.
        shown: The metric by step, as Optuna has it.
        changed_at: Last step of the config that was proposed, where the scheduler changed it; from
            there the trial went on where another one was.
    """

    tune: str
    optuna: str
    mlflow: str
    reason: str | None
    told: str | None
    curve: Mapping[int, float]
    shown: Mapping[int, float]
    changed_at: int | None = None

    @property
    def outcome(self) -> Outcome:
        """How the trial ended, by its run's tag."""
        return Outcome.of_tag(self.reason or "")


def trial_states(
    trials: Iterable["Trial"],
    study: "optuna.Study",
    client: "mlflow.MlflowClient",
    experiment_name: str,
    metric: str,
) -> dict[str, TrialStates]:
    """Return where each trial stands, by Tune's id, after asserting that it stands once in each.

    Args:
        trials: Tune's trials, as ``tune.run(...).trials`` gives them.
        study: The searcher's study.
        client: Reads the store that the callback wrote to.
        experiment_name: MLflow's experiment of the sweep, which holds no other.
        metric: Whose curve is compared.
    """
    attrs = study.user_attrs
    told = {str(tune_trial_id(trial, attrs)): trial for trial in study.trials}
    assert len(told) == len(study.trials), "a trial stands in Optuna twice"
    experiment = client.get_experiment_by_name(experiment_name)
    runs = [
        run
        for run in client.search_runs([experiment.experiment_id], max_results=10_000)
        if TRIAL_ID in run.data.tags
    ]
    tracked = {run.data.tags[TRIAL_ID]: run for run in runs}
    assert len(tracked) == len(runs), "a trial stands in MLflow twice"
    known = {trial.trial_id: trial for trial in trials}
    assert known.keys() == told.keys() == tracked.keys(), "a trial is missing in a system"
    return {
        trial_id: TrialStates(
            tune=trial.status,
            optuna=told[trial_id].state.name,
            mlflow=tracked[trial_id].info.status,
            reason=tracked[trial_id].data.tags.get(STOP_REASON_TAG),
            told=told[trial_id].user_attrs.get(STOP_REASON),
            curve=_curve(client, tracked[trial_id], metric),
            shown=dict(told[trial_id].intermediate_values),
            changed_at=told[trial_id].user_attrs.get(CONFIG_CHANGED_AT),
        )
        for trial_id, trial in known.items()
    }


def assert_one_truth(standings: Mapping[str, TrialStates]) -> None:
    """Assert that every trial has ended, in one state of the table of outcomes in all systems."""
    for trial_id, standing in standings.items():
        outcome = standing.outcome
        told = (standing.tune, standing.optuna, standing.mlflow)
        wanted = (outcome.tune, outcome.optuna, outcome.mlflow)
        assert told == wanted, f"{trial_id}, which is {outcome.value}, stands as {told}"
        assert standing.told == standing.reason, f"{trial_id} ended in two ways: {standing}"
        last = standing.changed_at or max(standing.curve, default=0)
        steps = sorted(step for step in standing.curve if step <= last)
        assert steps == list(range(1, last + 1)), f"{trial_id} has steps {steps} up to {last}"
        wrong = {
            step: value
            for step, value in standing.shown.items()
            if standing.curve.get(step) != value
        }
        assert not wrong, f"{trial_id} was shown to Optuna with {wrong}, but reported otherwise"
        if outcome is Outcome.PRUNED:
            assert standing.shown, f"{trial_id} was pruned without a value"


def _curve(client: Any, run: Any, metric: str) -> dict[int, float]:
    history = client.get_metric_history(run.info.run_id, metric)
    curve = {point.step: point.value for point in history}
    assert len(curve) == len(history), f"{metric} of run {run.info.run_id} has a step twice"
    return curve
