"""Verification of a reproducible sweep: run it again, and find the first difference."""

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

from ray import tune
from ray.tune.experiment import Trial

from tune_tf.config import SweepConfig
from tune_tf.errors import InvalidSettingsError, SweepConflictError
from tune_tf.formatting import counted
from tune_tf.inspection import SweepState, SweepView
from tune_tf.outcome import STOP_CAUSE, STOP_REASON
from tune_tf.result_keys import TRAINING_ITERATION
from tune_tf.results import TrialResult
from tune_tf.schedulers.logical_sweep import LogicalSweep, logical_metrics
from tune_tf.schedulers.reproducible import (
    ReproducibleScheduler,
    value_differences,
)
from tune_tf.sweep.callbacks.guards import BrokenWorkloadCheck
from tune_tf.sweep.cluster import (
    TUNE_ENVIRONMENT,
    cluster,
    environment_defaults,
    is_remote_client,
    run_on_cluster,
)
from tune_tf.sweep.plan import SweepPlan, plan_sweep
from tune_tf.sweep.reproducibility import make_reproducible_scheduler, trial_environment
from tune_tf.sweep.run import run_sweep
from tune_tf.sweep.runner import sweep_trainable
from tune_tf.sweep.state.config_diff import changes_between
from tune_tf.sweep_folder import SweepFolder, trial_folder_name
from tune_tf.trainables.memory.oom_retries import OomRetries

_MAX_VALUES = 3
_END = ("done", STOP_REASON, STOP_CAUSE)
_DERIVED = ("done", "trial_id", "time_total_s")  # of an event


@dataclass(frozen=True)
class Verification:
    """Comparison of a reproducible sweep with its repetition.

    Args:
        sweep_id: The sweep.
        compared: What was compared, such as ``104 events, fingerprint 7144807a4add01ec``.
        difference: Where the first difference is, and both values; None if there is none.
        notes: What may explain a difference, and what was not compared.
        rerun: Folder of the repetition; None if only trials were trained again.
        interrupted: Whether the repetition was interrupted.
    """

    sweep_id: str
    compared: str
    difference: str | None
    notes: tuple[str, ...] = ()
    rerun: Path | None = None
    interrupted: bool = False


def verify_sweep(
    path: str | Path,
    trials: Sequence[str] = (),
    *,
    storage_path: str | Path = "sweeps",
    callbacks: Sequence[tune.Callback] = (),
) -> Verification:
    """Run a reproducible sweep again, without MLflow and in a folder beside, and compare the two.

    Of an interrupted sweep, what it has done is compared.

    Args:
        path: Folder, id or name of the sweep; a name selects its latest sweep.
        trials: Ids or numbers of trials; if there are any, only these are trained again, each with
            its config, seed and resources, and their metrics are compared.
        storage_path: Folder that is searched for ids and names.
        callbacks: Additional Tune callbacks.

    Raises:
        UnknownSweepError: There is no such sweep.
        UnknownTrialError: It has no such trial.
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
    view = SweepView.of(folder)
    if view.state is SweepState.RUNNING:
        raise SweepConflictError(f"{folder.sweep_id} is running: verify it when it has ended")
    chosen = [view.trial(name).result for name in dict.fromkeys(trials)]
    if is_remote_client(folder.config.cluster):
        with cluster(folder.config.cluster, folder.base_dir):
            return run_on_cluster(verify_sweep, folder.path, trials, callbacks=callbacks)
    with cluster(folder.config.cluster, folder.base_dir):
        plan = plan_sweep(folder.config, base_dir=folder.base_dir)
        first = make_reproducible_scheduler(folder, plan.max_concurrent_trials, plan.mutations)
        notes = list(_notes(view, first, plan))
        if chosen:
            return _verify_trials(folder, chosen, first.sweep, plan, notes, callbacks)
        return _verify_whole(view, first, plan, notes, callbacks)


def _notes(view: SweepView, first: ReproducibleScheduler, plan: SweepPlan) -> Iterator[str]:
    """Yield what is known to differ before anything is run again."""
    recorded = first.fingerprint
    now = trial_environment(plan)
    if recorded.environment and recorded.environment != now:
        differences = value_differences(recorded.environment, now)
        yield f"the environment then and now: {differences}"
    if view.fingerprint is not None and view.fingerprint.digest != recorded.digest:
        yield (
            f"its fingerprint was {view.fingerprint.digest}, but from its folder it is "
            f"{recorded.digest}: results, settings or versions have changed since"
        )
    yield from (f"not comparable: {reason}" for reason in recorded.reasons)


def _verify_whole(
    view: SweepView,
    first: ReproducibleScheduler,
    plan: SweepPlan,
    notes: list[str],
    callbacks: Sequence[tune.Callback],
) -> Verification:
    folder = view.folder
    config = folder.edited() or folder.config
    changes = changes_between(folder.config, config)
    notes += [f"sweep.yaml was edited: {name} {values}" for name, values in changes.items()]
    result = run_sweep(_rerun_config(folder, config), base_dir=folder.base_dir, callbacks=callbacks)
    rerun = SweepFolder.open(result.path)
    second = make_reproducible_scheduler(rerun, plan.max_concurrent_trials, plan.mutations).sweep
    is_whole = view.state is SweepState.ENDED and not result.interrupted
    is_whole = is_whole and first.sweep.has_all_trials and first.sweep.has_ended
    difference = first_difference(
        first.sweep, second, folder.config.leading_objective.metric, is_whole=is_whole
    )
    num_events = min(len(first.sweep.events), len(second.events))
    compared = counted(num_events, "event")
    compared += (
        f", fingerprint {second.fingerprint}" if is_whole else " of a sweep that has not ended"
    )
    return Verification(
        folder.sweep_id, compared, difference, tuple(notes), result.path, result.interrupted
    )


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


def first_difference(
    one: LogicalSweep, other: LogicalSweep, metric: str, *, is_whole: bool
) -> str | None:
    """Return the first difference of two sweeps in logical order; None if there is none.

    Unless ``is_whole``, one of them has no end, and is compared as far as it goes. Of values that
    differ, that of ``metric`` comes first.
    """
    for number, (first, second) in enumerate(zip_longest(one.events, other.events), start=1):
        if first != second and (is_whole or None not in (first, second)):
            return f"at event {number}: {_event_difference(first, second, metric)}"
    if is_whole and one.fingerprint != other.fingerprint:
        return "after the last event: in outcomes, or in results that arrived after the end"
    return None


def _event_difference(first: str | None, second: str | None, metric: str) -> str:
    """Return how two events differ, each a line of JSON, None for no event."""
    events = [json.loads(line) if line else {} for line in (first, second)]
    one, other = (_event_name(event) for event in events)
    if one != other:
        return f"{one} and {other}"
    then, now = map(_event_values, events)
    return f"{one}: {_differing_values(then, now, metric)}"


def _event_name(event: Mapping[str, Any]) -> str:
    if not event:
        return "the end"
    if "config" in event:
        return f"config of trial {event['trial']}"
    if not event["result"]:
        return f"failure of trial {event['trial']}"
    return f"trial {event['trial']}, iteration {event['result'][TRAINING_ITERATION]}"


def _event_values(event: Mapping[str, Any]) -> dict[str, Any]:
    values = {**event.get("config", {}), **event.get("result", {})}
    place = {"begins from": event.get("start"), "logical time": event.get("time")}
    return {**{name: it for name, it in values.items() if name not in _DERIVED}, **place}


def _differing_values(one: Mapping[str, Any], other: Mapping[str, Any], metric: str) -> str:
    """Return the first values that differ, that of a metric before others; empty without any."""
    names = sorted({**one, **other}, key=lambda name: name != metric)
    texts = [{name: repr(it.get(name)) for name in names} for it in (one, other)]  # NaN is NaN
    differing = [name for name in names if texts[0][name] != texts[1][name]]
    listed = differing[:_MAX_VALUES]
    text = value_differences(*({name: it[name] for name in listed} for it in texts))
    more = len(differing) - len(listed)
    return f"{text}, and {counted(more, 'other value')}" if more else text


def _verify_trials(
    folder: SweepFolder,
    trials: Sequence[TrialResult],
    sweep: LogicalSweep,
    plan: SweepPlan,
    notes: list[str],
    callbacks: Sequence[tune.Callback],
) -> Verification:
    curves: dict[int, dict[int, Mapping[str, Any]]] = {}
    for position, metrics in sweep.results.items():
        if metrics and not position.segment:
            curves.setdefault(position.trial, {})[position.iteration] = metrics
    changed = {position.trial for position in sweep.results if position.segment}
    again = []
    for trial in trials:
        if trial.number in changed:
            notes.append(f"trial {trial.number} is left out: its config was changed while it ran")
        elif trial.number not in curves:
            notes.append(f"trial {trial.number} is left out: it has no result")
        else:
            again.append(trial)
    if not again:
        raise InvalidSettingsError(f"none of these trials can be compared: {'; '.join(notes)}")
    limits = {trial.number: max(curves[trial.number]) for trial in again}
    trained = _train_again(folder.config, plan, again, limits, folder.path.parent, callbacks)
    metric = folder.config.leading_objective.metric
    differences = (
        f"in trial {number}, iteration {iteration}: {difference}"
        for number in sorted(limits)
        for iteration, recorded in sorted(curves[number].items())
        if (
            difference := _differing_values(
                _without_end(recorded), _without_end(trained.get((number, iteration), {})), metric
            )
        )
    )
    compared = f"{counted(len(again), 'trial')}, {counted(sum(limits.values()), 'iteration')}"
    return Verification(folder.sweep_id, compared, next(differences, None), tuple(notes))


def _without_end(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return metrics without how the trial ended, which the scheduler decides."""
    return {name: it for name, it in metrics.items() if name not in _END}


@dataclass
class _MetricsRecorder(tune.Callback):
    """Tune callback that keeps the metrics of trials by the number in their names."""

    metrics: dict[tuple[int, int], dict[str, Any]] = field(default_factory=dict)

    def on_trial_result(self, trial: Trial, result: dict[str, Any], **info: Any) -> None:
        number, iteration = int(str(trial).rpartition("_")[2]), result[TRAINING_ITERATION]
        self.metrics[number, iteration] = logical_metrics(result)


def _train_again(
    config: SweepConfig,
    plan: SweepPlan,
    trials: Sequence[TrialResult],
    limits: Mapping[int, int],
    folder: Path,
    callbacks: Sequence[tune.Callback],
) -> dict[tuple[int, int], dict[str, Any]]:
    """Train trials up to the iterations in ``limits``, by number; return metrics by iteration."""
    recorder = _MetricsRecorder()
    parallelism = config.parallelism
    temporary = tempfile.TemporaryDirectory(prefix=f"{config.name}-verify-", dir=folder)
    with environment_defaults(TUNE_ENVIRONMENT), temporary as path:
        trainable_class = sweep_trainable(config, plan, Path(path))
        experiments = []
        for trial in trials:
            name = trial_folder_name(trial.number)  # determines the seed
            experiments.append(
                tune.Experiment(
                    name,
                    trainable_class,
                    config=dict(trial.config),
                    stop={TRAINING_ITERATION: limits[trial.number]},
                    storage_path=path,
                    max_failures=config.max_failures,
                    trial_name_creator=lambda _, name=name: name,
                    trial_dirname_creator=lambda _, name=name: name,
                )
            )
        own = [
            BrokenWorkloadCheck(),
            OomRetries(
                plan.workload, parallelism, loop=config.loop, oom_retries=config.oom_retries
            ),
        ]
        analysis = tune.run(
            experiments,
            callbacks=[*own, recorder, *callbacks],
            raise_on_failed_trial=False,
            verbose=0,
        )
    if not all(trial.is_finished() for trial in analysis.trials):
        raise KeyboardInterrupt
    return recorder.metrics
