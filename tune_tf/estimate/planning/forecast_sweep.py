"""From a sweep's settings to what it will take."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import ray

from tune_tf.config import SweepConfig
from tune_tf.errors import UnavailableResourcesError
from tune_tf.estimate.planning.build_forecast import ForecastBuilder
from tune_tf.estimate.planning.costs import fitted
from tune_tf.estimate.planning.machine import Machine, busy
from tune_tf.estimate.planning.measure_trials import Measured, affordable, measure
from tune_tf.estimate.planning.model_profiles import (
    ModelProfile,
    ModelProfiles,
    profile_models_here,
)
from tune_tf.estimate.planning.model_profiles import config_text as told_config
from tune_tf.estimate.planning.overhead import MeasuredOverhead, open_store, time_report
from tune_tf.estimate.planning.simulated import simulated
from tune_tf.estimate.scaling.probe import TrainableClass
from tune_tf.estimate.workload_sample import Part, part_of
from tune_tf.forecast import Forecast, settings_digest
from tune_tf.sweep.builders import make_scheduler
from tune_tf.sweep.cluster import cluster
from tune_tf.sweep.plan import SweepPlan, plan_sweep
from tune_tf.trainables import trainable

Tell = Callable[[str, float], None]
"""Told in words what goes on, and how much of all is done, from 0 to 1."""

_MAX_BATCHES = 40
_MOST_SLOTS = 16
_NUM_SEEDS = 5
_ROUND_S = 1.0


def forecast_sweep(
    config: SweepConfig, *, base_dir: Path | None = None, tell: Tell = lambda what, done: None
) -> Forecast:
    """Tell what a sweep will take, by training a few batches of a few configs.

    Builds the smallest, the largest and random models of the space, trains the two ends and two
    random ones in as many fresh processes as the sweep will have at a time, simulates the sweep's
    scheduler in virtual time, and rehearses what is done beside the trials. Starts a Ray cluster on
    this machine, and ends it again, where none is connected.

    Args:
        config: The sweep's settings.
        base_dir: What the workload's path is relative to; the working directory by default.
        tell: Told what goes on.

    Raises:
        WorkloadError: The workload or a model at a corner of the space does not work.
        InvalidSettingsError: A part refuses its settings.
        UnavailableResourcesError: No machine can hold a trial, or its memory.
    """
    base_dir = base_dir or Path.cwd()
    tell("starting Ray", 0.0)
    busy_cores = busy()
    begun = time.perf_counter()
    with cluster():
        cluster_s = time.perf_counter() - begun
        plan = plan_sweep(config, base_dir=base_dir)
        machine = Machine.of(busy_cores)
        tell("building models", 0.1)
        survey = _surveyed(plan)
        num_slots = min(plan.max_concurrent_trials, _MOST_SLOTS)
        if machine.num_nodes == 1:
            num_slots = affordable(num_slots)
        measured, store = _measured(plan, survey, num_slots, tell)
        _check_memory(survey, measured, machine)
        chosen = _chosen(survey)
        scheduler = make_scheduler(config, plan.mutations)
        reuses = config.reuse_actors and not scheduler.fresh_actors
        costs = fitted(measured, chosen, survey, process_s=0.0 if reuses else measured.process_s)
        tell("simulating the scheduler", 0.8)
        runs = simulated(
            config,
            costs.epoch_s,
            num_slots=plan.max_concurrent_trials,
            num_seeds=_NUM_SEEDS,
            mutations=plan.mutations,
        )
        tell("rehearsing the report", 0.85)
        report = time_report(config, runs.traces[0], costs.epoch_s(survey.largest.config))
        begun = time.perf_counter()
    cluster_s += time.perf_counter() - begun
    return ForecastBuilder(
        plan=plan,
        machine=machine,
        survey=survey,
        facts=chosen,
        measured=measured,
        costs=costs,
        runs=runs,
        reuses=reuses,
        num_to_keep=scheduler.num_to_keep,
        first_rung=min(scheduler.rungs, default=config.scheduler.max_t),
        cluster_s=cluster_s,
        store=store,
        report=report,
    ).forecast(settings_digest(config), datetime.now(UTC).astimezone().isoformat())


def _surveyed(plan: SweepPlan) -> ModelProfiles:
    """Build models in a process of the cluster that ends afterwards.

    Raises:
        WorkloadError: One at a corner cannot be built.
        UnavailableResourcesError: The process died of one.
    """
    with TemporaryDirectory(prefix="tune-tf-plan-") as folder:
        notes = str(Path(folder, "building"))
        task: Any = ray.remote(num_cpus=1, max_retries=0, max_calls=1)(profile_models_here)
        config = plan.config
        try:
            found: ModelProfiles = ray.get(
                task.remote(plan.workload, config.space, config.seed, notes)
            )
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError) as error:
            what = Path(notes).read_text() if Path(notes).exists() else "a config of the space"
            raise UnavailableResourcesError(
                f"the process that built the model of {what} was killed: it probably needs more "
                "memory than there is; narrow the space"
            ) from error
    return found


def _chosen(survey: ModelProfiles) -> tuple[ModelProfile, ...]:
    """Return the models to train: the ends first, then random ones that differ from them."""
    found = [survey.largest]
    for facts in (survey.smallest, *survey.drawn[:2]):
        if facts not in found:
            found.append(facts)
    return tuple(found)


def _measured(
    plan: SweepPlan, survey: ModelProfiles, num_slots: int, tell: Tell
) -> tuple[Measured, MeasuredOverhead | None]:
    config = plan.config
    stores: list[Any] = []

    def make(notes: str) -> TrainableClass:
        return trainable(
            part_of(plan.workload, Part(_MAX_BATCHES, notes)),
            config.parallelism,
            resources=plan.resources,
            loop=config.loop,
            validation=config.validation,
            seed=config.seed,
        )

    def meanwhile() -> None:
        if config.mlflow is not None:
            stores.append(open_store())

    def say(what: str, done: float) -> None:
        tell(what, 0.3 + 0.5 * done)

    measured = measure(
        make,
        [facts.config for facts in _chosen(survey)],
        num_slots,
        round_s=_ROUND_S,
        meanwhile=meanwhile,
        tell=say,
    )
    return measured, ray.get(stores[0]) if stores else None


def _check_memory(survey: ModelProfiles, measured: Measured, machine: Machine) -> None:
    """Refuse a trial that this machine's memory cannot hold even alone.

    Raises:
        UnavailableResourcesError: It cannot; tells the config.
    """
    needed = measured.grown.host_bytes + measured.left_out_bytes
    if needed > machine.memory_bytes and machine.num_nodes == 1:
        raise UnavailableResourcesError(
            f"a trial of the largest model, {told_config(survey.largest.config)}, needs "
            f"{needed / 1e9:.1f} GB with all of its data, but this machine has "
            f"{machine.memory_bytes / 1e9:.1f} GB: narrow the space, use fewer rows, or a Pipeline "
            "that reads them while it trains"
        )
