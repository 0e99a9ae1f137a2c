"""Forecast of a sweep from its settings."""

import json
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
import ray

from tune_tf.config import SweepConfig
from tune_tf.errors import UnavailableResourcesError
from tune_tf.estimate.planning.build_forecast import build_forecast
from tune_tf.estimate.planning.measure_trials import (
    TrialMeasurements,
    measure_trials,
    num_affordable_slots,
)
from tune_tf.estimate.planning.measured_sweep import Machine, MeasuredOverhead, MeasuredSweep
from tune_tf.estimate.planning.model_profiles import (
    ModelProfile,
    ModelProfiles,
    config_text,
    profile_workload_models,
)
from tune_tf.estimate.planning.schedule_model import fit_costs
from tune_tf.estimate.planning.simulated_sweeps import PlannedTrial, Trace, simulate_sweeps
from tune_tf.estimate.sample_process import ProgressCallback
from tune_tf.forecast import Forecast, settings_digest
from tune_tf.outcome import Outcome
from tune_tf.results import SweepResult, TrialResult
from tune_tf.sweep.cluster import cluster
from tune_tf.sweep.plan import SweepPlan, make_scheduler, plan_sweep
from tune_tf.sweep_folder import trial_folder_name

_MAX_SLOTS = 16
_NUM_SEEDS = 5
_NUM_METRICS = 8  # typical number of metrics per result besides the objective


def forecast_sweep(
    config: SweepConfig,
    *,
    base_dir: Path | None = None,
    on_progress: ProgressCallback = lambda step, share: None,
) -> Forecast:
    """Forecast a sweep by training a few batches of a few configs.

    Builds the smallest, the largest and random models of the space, trains the first two and two
    random ones in as many processes as the sweep has concurrent trials, simulates the scheduler
    in virtual time, and times the report and MLflow's store. Without a connected Ray cluster, it
    starts one on this machine and stops it afterwards. The workload's path is relative to
    ``base_dir``, by default the working directory.

    Raises:
        WorkloadError: The workload fails, or a model of an extreme config cannot be built.
        InvalidSettingsError: The settings are invalid.
        UnavailableResourcesError: No machine has the resources or the memory for a trial.
    """
    on_progress("starting Ray", 0.0)
    busy_percent = psutil.cpu_percent(interval=0.5)
    start = time.perf_counter()
    with cluster():
        start_s = time.perf_counter() - start
        plan = plan_sweep(config, base_dir=base_dir or Path.cwd())
        sweep = _measure(plan, Machine.of(busy_percent), on_progress)
        start = time.perf_counter()
    sweep = replace(sweep, cluster_s=start_s + time.perf_counter() - start)
    made_at = datetime.now(UTC).astimezone().isoformat()
    return build_forecast(sweep, settings_digest(config), made_at)


def _measure(plan: SweepPlan, machine: Machine, on_progress: ProgressCallback) -> MeasuredSweep:
    config = plan.config
    on_progress("building models", 0.1)
    profiles = _profile_in_process(plan)
    trained = _profiles_to_train(profiles)
    num_slots = min(plan.max_concurrent_trials, _MAX_SLOTS)
    if machine.num_nodes == 1:
        num_slots = num_affordable_slots(num_slots, machine.available_bytes)
    # The store is created while the processes start, as in a sweep.
    creation = ray.remote(num_cpus=0, max_retries=0)(_time_store_creation)
    store = None if config.mlflow is None else creation.remote()
    measured = measure_trials(
        plan,
        [profile.config for profile in trained],
        num_slots,
        lambda step, share: on_progress(step, 0.3 + 0.5 * share),
    )
    _check_memory(profiles, measured, machine)
    scheduler = make_scheduler(config, plan.mutations)
    process_s = 0.0 if config.reuse_actors else measured.process_s
    costs = fit_costs(measured, trained, profiles, process_s=process_s)
    on_progress("simulating the scheduler", 0.8)
    simulated = simulate_sweeps(
        config,
        costs.epoch_s,
        num_slots=plan.max_concurrent_trials,
        num_seeds=_NUM_SEEDS,
        mutations=plan.mutations,
    )
    on_progress("timing the report", 0.85)
    report = ray.remote(num_cpus=0, max_retries=0)(_time_report)
    epoch_s = costs.epoch_s(profiles.largest.config)
    return MeasuredSweep(
        plan=plan,
        machine=machine,
        profiles=profiles,
        trained=trained,
        measured=measured,
        costs=costs,
        simulated=simulated,
        reuses=config.reuse_actors,
        num_to_keep=scheduler.num_to_keep,
        first_rung=min(scheduler.rungs, default=config.scheduler.max_t),
        cluster_s=0.0,
        store=None if store is None else ray.get(store),
        report=ray.get(report.remote(config, simulated.traces[0], epoch_s)),
    )


def _profile_in_process(plan: SweepPlan) -> ModelProfiles:
    """Build models in a cluster process that ends afterwards."""
    with TemporaryDirectory(prefix="tune-tf-plan-") as folder:
        building_file = Path(folder, "building")
        task: Any = ray.remote(num_cpus=1, max_retries=0, max_calls=1)(profile_workload_models)
        config = plan.config
        try:
            profiles: ModelProfiles = ray.get(
                task.remote(plan.workload, config.space, config.seed, building_file)
            )
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError) as error:
            built = building_file.read_text() if building_file.exists() else "a config of the space"
            raise UnavailableResourcesError(
                f"the process that built the model of {built} was killed: it probably needs more "
                "memory than is available; narrow the space"
            ) from error
    return profiles


def _profiles_to_train(profiles: ModelProfiles) -> tuple[ModelProfile, ...]:
    """Return the models to train: the extremes first, then two other random ones."""
    trained = [profiles.largest]
    for profile in (profiles.smallest, *profiles.random[:2]):
        if profile not in trained:
            trained.append(profile)
    return tuple(trained)


def _check_memory(profiles: ModelProfiles, measured: TrialMeasurements, machine: Machine) -> None:
    """Raise an error that names the config if this machine's memory cannot hold a single trial."""
    needed = measured.final_usage.host_bytes + measured.final_usage.left_out_bytes
    if needed > machine.memory_bytes and machine.num_nodes == 1:
        raise UnavailableResourcesError(
            f"a trial of the largest model, {config_text(profiles.largest.config)}, needs "
            f"{needed / 1e9:.1f} GB with all of its data, but this machine has "
            f"{machine.memory_bytes / 1e9:.1f} GB: narrow the space, use fewer rows, or a Pipeline "
            "that reads them while it trains"
        )


def _time_store_creation() -> MeasuredOverhead:
    with TemporaryDirectory() as folder:
        start = time.perf_counter()
        from tune_tf.tracking.store import connect

        path = Path(folder, "mlflow.db")
        connect(f"sqlite:///{path}").search_experiments()
        return MeasuredOverhead(time.perf_counter() - start, path.stat().st_size)


def _time_report(config: SweepConfig, trace: Trace, iteration_s: float) -> MeasuredOverhead:
    """Time the report of a simulated sweep with iterations of equal length."""
    from tune_tf.report import write_report  # slow to import

    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "sweep.yaml").write_text(config.to_yaml())
        trials = tuple(_write_results(folder, trace, trial, iteration_s) for trial in trace.trials)
        result = SweepResult(folder.name, folder, config, folder, trials)
        start = time.perf_counter()
        files = write_report(result, folder / "report")
        seconds = time.perf_counter() - start
        return MeasuredOverhead(seconds, sum(path.stat().st_size for path in files.values()))


def _write_results(
    folder: Path, trace: Trace, trial: PlannedTrial, iteration_s: float
) -> TrialResult:
    """Write the ``result.json`` of a simulated trial, as Tune would; return the trial's result."""
    metric, now_s = trace.objective.metric, time.time()
    lines: list[dict[str, Any]] = [
        {
            metric: event.value,
            **{f"metric_{number}": event.value for number in range(_NUM_METRICS)},
            "training_iteration": event.iteration,
            "timestamp": int(now_s + event.iteration * iteration_s),
            "time_total_s": event.iteration * iteration_s,
            "time_since_restore": event.iteration * iteration_s,
            "pid": 1,
            "hostname": "here",
            "config": dict(trial.config),
        }
        for event in trace.events
        if event.trial == trial.number
    ]
    path = folder / trial_folder_name(trial.number) / "result.json"
    path.parent.mkdir()
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    iterations = lines[-1]["training_iteration"] if lines else 0
    return TrialResult(
        trial_id=f"{trial.number:08d}",
        number=trial.number,
        config=trial.config,
        outcome=Outcome.COMPLETED if iterations >= trace.max_t else Outcome.PRUNED,
        iterations=iterations,
        metrics={metric: lines[-1][metric]} if lines else {},
    )
