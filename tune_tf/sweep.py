"""A sweep from its settings to its result: puts the parts together and calls ``tune.run``."""

import contextlib
import errno
import logging
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import ray
from ray import tune
from ray.tune.experiment import Trial
from ray.tune.logger import JsonLoggerCallback
from ray.tune.schedulers import TrialScheduler

from tune_tf.config import SweepConfig, import_workload
from tune_tf.constraint import Constraint, is_feasible
from tune_tf.errors import (
    DiskFullError,
    TuneTfError,
    UnavailableResourcesError,
    WorkloadError,
)
from tune_tf.folder import SweepFolder
from tune_tf.outcome import STOP_CAUSE, Outcome
from tune_tf.resources import TrialResources
from tune_tf.results import SweepResult, TrialResult
from tune_tf.schedulers import scheduler
from tune_tf.searchers import OptunaSearcher
from tune_tf.tracking import Endings, MLflowCallback
from tune_tf.tracking.ending import cause_of
from tune_tf.tracking.endings import error_of, last_report
from tune_tf.trainables import trainable
from tune_tf.trainables.factory import check_cluster, default_resources
from tune_tf.trainables.recycling import RecycleActors

_log = logging.getLogger(__name__)

_NUMBER = re.compile(r"^(\d+)")
_REFUSAL = re.compile(r"tune_tf\.errors\.WorkloadError: (.+)", re.DOTALL)
_BOOKKEEPING = frozenset(
    {
        "episodes_total",
        "iterations_since_restore",
        "pid",
        "time_since_restore",
        "time_this_iter_s",
        "time_total_s",
        "timestamp",
        "timesteps_total",
        "training_iteration",
    }
)

# How Tune behaves below us, unless the user's environment says otherwise.
_TUNE_ENVIRONMENT = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # we name the loggers that a sweep needs
    "TUNE_GLOBAL_CHECKPOINT_S": "2",  # what a killed driver can lose of Tune's own state
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",  # our scheduler checks, and names what there is
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",  # the result, MLflow and error.txt have them
    "RAY_AIR_NEW_OUTPUT": "0",
    "TF_CPP_MIN_LOG_LEVEL": "2",
}


@dataclass(frozen=True)
class SweepPlan:
    """What a sweep would do.

    Args:
        config: The sweep's settings.
        resources: What a trial reserves.
        max_concurrent_trials: Trials at a time.
        examples: A few configs of the space.
    """

    config: SweepConfig
    resources: TrialResources
    max_concurrent_trials: int
    examples: tuple[dict[str, Any], ...]


def plan_sweep(config: SweepConfig, *, base_dir: Path | None = None) -> SweepPlan:
    """Check a sweep as far as that is possible without training, on the cluster of the moment.

    Args:
        config: The sweep's settings.
        base_dir: What the workload's path is relative to; the working directory by default.

    Raises:
        WorkloadError: The workload cannot be imported.
        InvalidSettingsError: A part refuses its settings.
        UnavailableResourcesError: No machine can hold a trial.
    """
    import_workload(config.workload, base_dir or Path.cwd())
    scheduler(**_scheduler_settings(config))
    if config.mlflow is not None:
        MLflowCallback(config.mlflow.tracking_uri, config.mlflow.experiment_name)
    resources = config.resources or default_resources(config.parallelism)
    rng = np.random.default_rng(config.seed)
    return SweepPlan(
        config,
        resources,
        _concurrency(config, resources),
        tuple(config.space.sample(rng) for _ in range(3)),
    )


def run_sweep(
    config: SweepConfig,
    *,
    base_dir: str | Path | None = None,
    callbacks: Sequence[tune.Callback] = (),
) -> SweepResult:
    """Run a sweep to its end, or until Ctrl-C.

    Starts a Ray cluster on this machine, and ends it again, where none is connected; set
    ``RAY_ADDRESS`` or call ``ray.init`` first for another.

    Args:
        config: The sweep's settings.
        base_dir: What the workload's path is relative to; the working directory by default.
        callbacks: More Tune callbacks, called after the sweep's own.

    Returns:
        All trials and the best one; ``interrupted`` tells whether a resume would go on.

    Raises:
        TuneTfError: Before any trial starts, where something is wrong that can be known.
    """
    base_dir = Path(base_dir or Path.cwd())
    with _cluster():
        plan_sweep(config, base_dir=base_dir)
        folder = SweepFolder.create(config, base_dir)
        return _run(folder, resume=False, callbacks=callbacks)


def resume_sweep(
    path: str | Path,
    *,
    storage_path: str | Path = "sweeps",
    callbacks: Sequence[tune.Callback] = (),
) -> SweepResult:
    """Go on with a sweep that was interrupted or killed.

    Trials that have ended are not run again; those that were running go on from their last
    checkpoint.

    Args:
        path: The sweep's folder, its id, or its name for the latest sweep of that name.
        storage_path: Where sweeps are looked for by id or name.
        callbacks: More Tune callbacks, as many as at the start.

    Raises:
        UnknownSweepError: There is no such sweep.
        TuneTfError: As for :func:`run_sweep`.
    """
    folder = SweepFolder.open(path, storage_path)
    with _cluster():
        plan_sweep(folder.config, base_dir=folder.base_dir)
        return _run(folder, resume=folder.was_snapshot, callbacks=callbacks)


class _KeepScheduler(tune.Callback):
    """Puts the scheduler's rungs into Tune's snapshots, which leave them out."""

    def __init__(self, kept: TrialScheduler) -> None:
        self._scheduler = kept

    def get_state(self) -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "scheduler")
            self._scheduler.save(str(path))
            return {"scheduler": path.read_bytes()}

    def set_state(self, state: dict[str, Any]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "scheduler")
            path.write_bytes(state["scheduler"])
            self._scheduler.restore(str(path))


class _RefuseBrokenWorkload(tune.Callback):
    """Ends a sweep whose very first trials find that the workload breaks its contract."""

    def on_trial_error(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        if any(last_report(other) for other in trials):
            return
        # Of an error in an actor's making Ray keeps the text only.
        refusal = _REFUSAL.search(error_of(trial))
        if refusal:
            raise WorkloadError(refusal[1].strip())


@contextlib.contextmanager
def _told_plainly(folder: SweepFolder) -> Iterator[None]:
    """Raise what went wrong, not Tune's text of a traceback that has it inside."""
    try:
        yield
    except Exception as error:
        cause = error.__cause__ or error.__context__ if isinstance(error, tune.TuneError) else error
        if isinstance(cause, OSError) and cause.errno == errno.ENOSPC:
            raise DiskFullError(
                f"the disk is full: {cause}; make room, then go on with: "
                f"tune-tf resume {folder.path}"
            ) from error
        if isinstance(cause, TuneTfError) and cause is not error:
            raise cause from None
        raise


def _run(folder: SweepFolder, *, resume: bool, callbacks: Sequence[tune.Callback]) -> SweepResult:
    config = folder.config
    resources = config.resources or default_resources(config.parallelism)
    chosen = scheduler(**_scheduler_settings(config))
    searcher = OptunaSearcher(
        config.space,
        config.leading_objective,
        config.searcher.sampler,
        seed=config.searcher.seed,
        storage=folder.study_storage,
        study_name=folder.sweep_id,
    )
    tracker = _tracker(folder)
    endings = tracker or Endings(config.leading_objective)
    own = [
        endings,
        _KeepScheduler(chosen),
        RecycleActors(),
        JsonLoggerCallback(),
        _RefuseBrokenWorkload(),
    ]
    with _environment(_TUNE_ENVIRONMENT), _told_plainly(folder):
        analysis = tune.run(
            trainable(
                import_workload(config.workload, folder.base_dir),
                config.parallelism,
                resources=resources,
                loop=config.loop,
                seed=config.seed,
                checkpoint_interval_s=config.checkpoint_interval_s,
            ),
            name=folder.sweep_id,
            storage_path=str(folder.path.parent),
            num_samples=config.budget.num_samples,
            time_budget_s=config.budget.time_budget_s,
            search_alg=searcher,
            scheduler=chosen,
            max_concurrent_trials=_concurrency(config, resources),
            max_failures=config.max_failures,
            reuse_actors=config.reuse_actors,
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=True, num_to_keep=2),
            callbacks=[*own, *callbacks],
            resume_config=tune.ResumeConfig() if resume else None,
            resume=True if resume else None,
            trial_name_creator=_trial_name,
            trial_dirname_creator=_trial_name,
            raise_on_failed_trial=False,
            verbose=0,
        )
    searcher.finish(endings.outcomes)
    return SweepResult(
        sweep_id=folder.sweep_id,
        path=folder.path,
        config=config,
        base_dir=folder.base_dir,
        trials=tuple(
            sorted(
                (
                    _result(trial, endings.outcomes.get(trial.trial_id), config.constraints)
                    for trial in analysis.trials
                ),
                key=lambda result: result.number,
            )
        ),
        mlflow_run_id=tracker.parent_run_id if tracker else None,
    )


def _tracker(folder: SweepFolder) -> MLflowCallback | None:
    if folder.config.mlflow is None or folder.tracking_uri is None:
        return None
    return MLflowCallback(
        folder.tracking_uri,
        folder.config.mlflow.experiment_name,
        sweep_name=folder.sweep_id,
        objective=folder.config.leading_objective,
        constraints=folder.config.constraints,
        sweep_id=folder.sweep_id,
        artifacts={"sweep.yaml": folder.config.to_yaml()},
    )


def _scheduler_settings(config: SweepConfig) -> dict[str, Any]:
    return {**config.scheduler.model_dump(), "objective": config.leading_objective}


def _concurrency(config: SweepConfig, resources: TrialResources) -> int:
    """Return how many trials run at a time: as many as were asked for, or as the cluster holds.

    Raises:
        UnavailableResourcesError: No machine can hold a single one.
    """
    check_cluster(resources)
    if ray.is_initialized():
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    else:
        nodes = [{"CPU": float(os.cpu_count() or 1), "GPU": resources.gpus}]
    fitting = sum(
        int(min(node.get(kind, 0) // count for kind, count in resources.bundle.items()))
        for node in nodes
    )
    if fitting < 1:
        raise UnavailableResourcesError(
            f"a trial asks for {resources.cpus} CPUs, but this machine has {os.cpu_count()}: it "
            "would wait for ever; ask for less, or connect to a Ray cluster"
        )
    wanted = config.max_concurrent_trials or fitting
    return min(wanted, fitting, config.budget.num_samples)


def _trial_name(trial: Trial) -> str:
    """Name a trial by its place in the order of proposal, which its seed follows from."""
    return f"trial_{trial_number(trial):05d}"


def trial_number(trial: Trial) -> int:
    """Return a trial's place in the order of proposal, from 0."""
    match = _NUMBER.match(trial.experiment_tag or "")
    return int(match[1]) - 1 if match else 0


def _result(
    trial: Trial, outcome: Outcome | None, constraints: Sequence[Constraint]
) -> TrialResult:
    last = last_report(trial)
    checkpoint = trial.checkpoint
    return TrialResult(
        trial_id=trial.trial_id,
        number=trial_number(trial),
        config=trial.config,
        outcome=outcome,
        cause=cause_of(error_of(trial)) if trial.status == Trial.ERROR else last.get(STOP_CAUSE),
        iterations=int(last.get("training_iteration", 0)),
        metrics={
            name: float(value)
            for name, value in last.items()
            if isinstance(value, float | int)
            and not isinstance(value, bool)
            and name not in _BOOKKEEPING
        },
        checkpoint=Path(checkpoint.path) if checkpoint else None,
        feasible=is_feasible(constraints, last),
    )


@contextlib.contextmanager
def _cluster() -> Iterator[None]:
    """Use the Ray cluster that is connected, or one of our own for as long as it is needed."""
    if ray.is_initialized():
        yield
        return
    with _environment(_TUNE_ENVIRONMENT):  # the workers inherit it
        ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    try:
        yield
    finally:
        ray.shutdown()


@contextlib.contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Set environment variables that the user has not set, for a while."""
    added = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)
