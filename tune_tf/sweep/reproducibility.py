"""Sweep in logical time from the settings and the folder of a sweep."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Final

from ray.tune.experiment import Trial

from tune_tf.config import SweepConfig
from tune_tf.outcome import Outcome
from tune_tf.schedulers.logical_sweep import LogicalSweep
from tune_tf.schedulers.reproducible import ReproducibleScheduler
from tune_tf.searchers import OptunaSearcher
from tune_tf.sweep.callbacks.budget_limit import BudgetLimit
from tune_tf.sweep.plan import SweepPlan, make_scheduler, study_searcher
from tune_tf.sweep.stopper import SweepStopper
from tune_tf.sweep_folder import SweepFolder
from tune_tf.tracking.environment import trial_device, versions
from tune_tf.tune_internals.trial_state import EndedTrials

LOGICAL_RESULTS: Final = "results.jsonl"
"""File in a sweep's folder with the results of its trials, in the order of arrival."""

_EARLIER_RESULTS: Final = "earlier/study.journal"
"""Copy of the earlier results of a warm start, as they were when the sweep began."""


class LogicalBudget:
    """Budget of a sweep in logical time: epochs, target and patience as in any other sweep."""

    def __init__(self, config: SweepConfig) -> None:
        config = config.model_copy(update={"reproducible": False})
        self._outcomes: dict[str, Outcome] = {}
        self._stopper = SweepStopper(f"logical {config.name}", config)
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
        "slots": str(plan.config.max_concurrent_trials),
    }


def make_reproducible_scheduler(
    folder: SweepFolder, num_workers: int, mutations: Sequence[str] | None = None
) -> ReproducibleScheduler:
    """Create the scheduler of a reproducible sweep, with the results in its folder.

    Args:
        folder: The sweep's folder.
        num_workers: Trials that run at a time.
        mutations: Parameters that the scheduler may change; None for those of the settings.
    """
    config = folder.config
    sweep = LogicalSweep(
        _searcher(folder),
        make_scheduler(config, mutations),
        num_slots=config.max_concurrent_trials or num_workers,
        num_samples=config.budget.num_samples,
        space=config.space,
        seed=config.seed,
        end_reason=LogicalBudget(config).end_reason,
    )
    return ReproducibleScheduler(sweep, num_workers=num_workers, file=folder.path / LOGICAL_RESULTS)


def _searcher(folder: SweepFolder) -> OptunaSearcher:
    """Create the searcher; a warm start has the results that it had when the sweep began."""
    if folder.warm_start_from is None:
        return study_searcher(folder)
    copy = folder.path / _EARLIER_RESULTS
    copy.parent.mkdir(exist_ok=True)
    study_searcher(folder, str(copy), "earlier")  # reads the source if it has not been read
    return study_searcher(folder, earlier=str(copy))
