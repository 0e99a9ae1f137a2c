"""Ordered sweep of a reproducible one, from its settings and the results in its folder."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from ray.tune.experiment import Trial

from tune_tf.config import SweepConfig
from tune_tf.outcome import STOPPED_BY_HAND, Outcome
from tune_tf.record import Record, SweepHistory, recorded_results
from tune_tf.result_keys import TRAINING_ITERATION
from tune_tf.schedulers.ordered_sweep import OrderedSweep, lasting_metrics
from tune_tf.schedulers.reproducible import ReproducibleScheduler, value_differences
from tune_tf.sweep.callbacks.budget_limit import BudgetLimit
from tune_tf.sweep.plan import SweepPlan, make_scheduler, study_searcher
from tune_tf.sweep.stopper import SweepStopper
from tune_tf.sweep_folder import SweepFolder
from tune_tf.tracking.environment import trial_device, versions
from tune_tf.tune_internals.trial_state import EndedTrials


class OrderedBudget:
    """Budget in results: epochs, target and patience as in any other sweep."""

    def __init__(self, config: SweepConfig) -> None:
        config = config.model_copy(update={"reproducible": False})
        self._outcomes: dict[str, Outcome] = {}
        self._stopper = SweepStopper(config)
        tracker: Any = SimpleNamespace(outcomes=self._outcomes)
        self._limit = BudgetLimit(config, self._stopper, tracker)
        self._ends = EndedTrials()

    def end_reason(
        self, trial: Trial, result: Mapping[str, Any], trials: Sequence[Trial]
    ) -> str | None:
        """Return why the sweep ends with a trial's result; None if it goes on."""
        self._stopper(trial.trial_id, dict(result))
        self._limit.on_trial_result(trial, dict(result))
        self._outcomes |= {each.trial_id: _outcome(each) for each in self._ends.take(trials)}
        self._limit.on_step_end(list(trials))
        self._limit.check()
        return self._stopper.reason


def _outcome(trial: Trial) -> Outcome:
    recorded = Outcome.of_result(trial.last_result)
    return Outcome.ERROR if trial.status == Trial.ERROR or recorded is None else recorded


def trial_environment(plan: SweepPlan) -> dict[str, str]:
    """Return what the results of a sweep depend on besides its settings, as text by name."""
    names = ("python", "tune_tf", "tensorflow", "keras", "ray", "optuna", "numpy")
    found, resources = versions(), plan.resources
    return {
        **{name: found[name] for name in names},
        "device": trial_device(on_gpu=resources.gpus > 0),
        "CPUs per trial": str(resources.cpus),
        **({"GPUs per trial": f"{resources.gpus:g}"} if resources.gpus else {}),
    }


def make_reproducible_scheduler(
    folder: SweepFolder, plan: SweepPlan, record: Record
) -> ReproducibleScheduler:
    """Create the scheduler of a reproducible sweep, and record what its results depend on."""
    history, environment = record.history, trial_environment(plan)
    reasons = list(history.reasons)
    if history.environment and history.environment != environment:
        changes = value_differences(history.environment, environment)
        reasons.append(f"it was resumed with another environment: {changes}")
    record.record_environment(environment, reasons)
    return ReproducibleScheduler(
        ordered_sweep_of(folder),
        num_workers=plan.max_concurrent_trials,
        environment=environment,
        reasons=reasons,
        num_created=len(history.trials),
    )


def ordered_sweep_of(folder: SweepFolder) -> OrderedSweep:
    """Return a sweep's ordered one, with the results in its folder reported."""
    config, history = folder.config, SweepHistory.read(folder.path)
    ordered = OrderedSweep(
        study_searcher(folder, history.earlier),
        make_scheduler(config),
        num_slots=config.slots,
        num_samples=config.budget.num_samples,
        seed=config.seed,
        max_epochs=config.budget.epochs,
        end_reason=OrderedBudget(config).end_reason,
        paths=config.space.parameters,
    )
    for trial in history.trials.values():
        for result in recorded_results(folder.path, trial.number):
            metrics = lasting_metrics(result, config.leading_objective.metric)
            done = bool(result.get("done"))
            ordered.report(trial.number, int(result[TRAINING_ITERATION]), metrics, done=done)
        failed = trial.outcome in (Outcome.ERROR, Outcome.OOM)
        if failed or (not trial.goes_on and trial.cause == STOPPED_BY_HAND):
            ordered.report_failure(trial.number)
    return ordered
