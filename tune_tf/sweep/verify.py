"""Verification of a reproducible sweep: run it again, and find the first difference."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ray import tune

from tune_tf.config import SweepConfig
from tune_tf.errors import InvalidSettingsError, SweepConflictError
from tune_tf.formatting import counted
from tune_tf.inspection import SweepState, SweepView
from tune_tf.record import SweepHistory, recorded_results
from tune_tf.result_keys import TRAINING_ITERATION
from tune_tf.schedulers.ordered_sweep import lasting_metrics
from tune_tf.schedulers.reproducible import value_differences
from tune_tf.space import flatten
from tune_tf.sweep.config_diff import changes_between
from tune_tf.sweep.run import run_sweep
from tune_tf.sweep_folder import SweepFolder


@dataclass(frozen=True)
class Verification:
    """Comparison of a reproducible sweep with another run of it.

    Args:
        sweep_id: The sweep.
        compared: What was compared, such as ``16 trials, 104 results``.
        difference: Where the first difference is, and both values; None if there is none.
        notes: What may explain a difference.
        other: Folder of the other run.
        interrupted: Whether that was interrupted.
    """

    sweep_id: str
    compared: str
    difference: str | None
    notes: tuple[str, ...]
    other: Path
    interrupted: bool = False


@dataclass(frozen=True)
class ComparedTrial:
    """What a sweep's folder says of a trial: flat config, metrics by iteration and outcome."""

    config: Mapping[str, Any]
    results: Mapping[int, Mapping[str, Any]]
    outcome: str | None


def verify_sweep(
    path: str | Path,
    other: str | Path | None = None,
    *,
    storage_path: str | Path = "sweeps",
    callbacks: Sequence[tune.Callback] = (),
) -> Verification:
    """Compare a reproducible sweep with another run of it.

    Of an interrupted sweep, what it has done is compared.

    Args:
        path: Folder, id or name of the sweep; a name selects its latest sweep.
        other: Likewise of the other run; None to run it again, without MLflow and in a folder
            beside.
        storage_path: Folder that is searched for ids and names.
        callbacks: Additional Tune callbacks of the new run.

    Raises:
        UnknownSweepError: There is no such sweep.
        InvalidSettingsError: It is not reproducible.
        SweepConflictError: It is running.
        TuneTfError: As for :func:`run_sweep`.
    """
    folder = SweepFolder.open(path, storage_path)
    if not folder.config.reproducible:
        raise InvalidSettingsError(
            f"{folder.sweep_id} is not reproducible, so another run of it may differ: write "
            "`reproducible: true` into its sweep file and run that"
        )
    if SweepView.of(folder).state is SweepState.RUNNING:
        raise SweepConflictError(f"{folder.sweep_id} is running: verify it when it has ended")
    interrupted = False
    if other is None:
        config = _rerun_config(folder, folder.edited() or folder.config)
        result = run_sweep(config, base_dir=folder.base_dir, callbacks=callbacks)
        other, interrupted = result.path, result.interrupted
    rerun = SweepFolder.open(other, storage_path)
    metric = folder.config.leading_objective.metric
    one, two = compared_trials(folder), compared_trials(rerun)
    is_whole = all(
        SweepView.of(each).state is SweepState.ENDED and not interrupted for each in (folder, rerun)
    )
    num_results = sum(len(trial.results) for trial in one.values())
    compared = f"{counted(len(one), 'trial')}, {counted(num_results, 'result')}"
    compared += "" if is_whole else " of a sweep that has not ended"
    difference = first_difference(one, two, metric, is_whole=is_whole)
    return Verification(
        folder.sweep_id, compared, difference, _notes(folder, rerun), rerun.path, interrupted
    )


def compared_trials(folder: SweepFolder) -> dict[int, ComparedTrial]:
    """Return what a sweep's folder says of its trials, by number."""
    metric, found = folder.config.leading_objective.metric, {}
    for trial in SweepView.of(folder).trials:
        number = trial.result.number
        lines = recorded_results(folder.path, number)
        results = {int(it[TRAINING_ITERATION]): lasting_metrics(it, metric) for it in lines}
        outcome = trial.result.outcome and trial.result.outcome.value
        found[number] = ComparedTrial(flatten(trial.result.config), results, outcome)
    return dict(sorted(found.items()))


def first_difference(
    one: Mapping[int, ComparedTrial],
    two: Mapping[int, ComparedTrial],
    metric: str,
    *,
    is_whole: bool,
) -> str | None:
    """Return the first difference of two runs; None if there is none.

    Metrics of trials with equal configs come first: other differences may follow from them. Unless
    ``is_whole``, one of the runs has no end, and is compared as far as it goes.
    """
    both = {number: (trial, two[number]) for number, trial in one.items() if number in two}
    for number, (first, second) in both.items():
        if first.config == second.config and (found := _metric_difference(first, second, metric)):
            return f"in trial {number}, {found}"
    for number, (first, second) in both.items():
        if first.config != second.config:
            differences = value_differences(first.config, second.config)
            return f"in the config of trial {number}: {differences}"
    if not is_whole:
        return None
    for number, (first, second) in both.items():
        ends = [
            f"{trial.outcome} after {max(trial.results, default=0)}" for trial in (first, second)
        ]
        if ends[0] != ends[1]:
            return f"in the end of trial {number}: {ends[0]} and {ends[1]} iterations"
    return None if len(one) == len(two) else f"in the number of trials: {len(one)} and {len(two)}"


def _metric_difference(first: ComparedTrial, second: ComparedTrial, metric: str) -> str | None:
    for iteration in sorted(first.results.keys() & second.results.keys()):
        then, now = first.results[iteration], second.results[iteration]
        for name in sorted({**then, **now}, key=lambda name: name != metric):
            values = then.get(name), now.get(name)
            if repr(values[0]) != repr(values[1]):  # NaN is NaN
                return f"iteration {iteration}: {name} {values[0]} and {values[1]}"
    return None


def _notes(folder: SweepFolder, rerun: SweepFolder) -> tuple[str, ...]:
    """Return what may explain a difference."""
    one, two = (SweepHistory.read(each.path) for each in (folder, rerun))
    changes = changes_between(folder.config, folder.edited() or folder.config)
    notes = [f"sweep.yaml was edited: {name} {values}" for name, values in changes.items()]
    if differences := value_differences(one.environment, two.environment):
        notes.append(f"the environment then and now: {differences}")
    return (*notes, *(f"not comparable: {reason}" for reason in (*one.reasons, *two.reasons)))


def _rerun_config(folder: SweepFolder, config: SweepConfig) -> SweepConfig:
    """Return the settings of the repetition: those that influence results are the sweep's."""
    searcher = config.searcher
    needs_mlflow = (searcher.warm_start_from or "").startswith("mlflow:")
    return config.model_copy(
        update={
            "name": f"{config.name}-verify",
            "storage_path": config.remote_storage or str(folder.path.parent),
            "searcher": searcher.model_copy(update={"storage": None, "study_name": None}),
            "mlflow": config.mlflow if needs_mlflow else None,
            "tensorboard": False,
        }
    )
