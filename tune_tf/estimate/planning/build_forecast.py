"""Builder of a sweep forecast from measurements and simulations."""

import shutil
import statistics

from tune_tf.config import SweepConfig
from tune_tf.config.scheduler_settings import AutoSettings
from tune_tf.estimate.planning.measured_sweep import MeasuredSweep
from tune_tf.forecast import ConfigMeasurement, Forecast, Range

# In process start times; the logging process starts before the last trial ends.
_MODEL_LOGGING = 0.15
_SETUP = 0.12  # of Tune, searcher and tracking before the first trial, in process start times
_BUSY = 0.2  # share of cores in use by other programs above which times are unreliable


def build_forecast(sweep: MeasuredSweep, digest: str, made_at: str) -> Forecast:
    """Return the forecast; ``made_at`` is an ISO 8601 time."""
    config, resources = sweep.plan.config, sweep.plan.resources
    num_at_once, process_s = sweep.plan.max_concurrent_trials, sweep.measured.process_s
    logging_s = _MODEL_LOGGING * process_s if sweep.logs_model else 0.0
    closing_s = sweep.around_single(sweep.report.seconds + logging_s)
    start_s = sweep.around_single(sweep.cluster_s + _SETUP * process_s)
    processes_s = sweep.around_single(process_s)
    training_s = sweep.widen(Range.of(each.wall_s for each in sweep.usages))
    if config.budget.time_budget_s is not None:
        training_s = training_s.at_most(config.budget.time_budget_s + max(sweep.epoch_seconds))
    wall_s = start_s + processes_s + training_s + closing_s
    trial_s = sweep.widen(Range.of(each.trial_s for each in sweep.usages))
    hours = (trial_s + processes_s.times(num_at_once)).times(1 / 3600)
    memory = sweep.memory_bytes
    fitting = int(sweep.machine.available_bytes // max(1.0, memory.likely))
    return Forecast(
        name=config.name,
        settings_digest=digest,
        made_at=made_at,
        machine=str(sweep.machine),
        cpus=resources.cpus,
        gpus=resources.gpus,
        num_at_once=num_at_once,
        num_fitting_memory=fitting,
        max_t=config.scheduler.max_t,
        models=_models(sweep),
        num_parameters=Range.of(each.num_parameters for each in sweep.profiles.known),
        memory_bytes=memory,
        gpu_memory_bytes=sweep.gpu_memory_bytes,
        epoch_s=Range.of(sweep.epoch_seconds),
        trials=sweep.trials,
        epochs=sweep.epochs,
        wall_s=wall_s,
        closing_s=closing_s,
        cpu_hours=hours.times(resources.cpus),
        gpu_hours=hours.times(resources.gpus),
        disk_bytes=sweep.folder_bytes,
        closing_bytes=sweep.closing_bytes,
        mlflow_bytes=sweep.mlflow_bytes,
        phases={
            "starting and stopping Ray": start_s,
            "first processes: TensorFlow, data, MLflow": processes_s,
            "trials": training_s,
            "report and best model": closing_s,
        },
        assumptions=_assumptions(sweep),
        frozen_layers=sweep.frozen_layers.text,
        frozen_bytes=sweep.frozen_layers.num_bytes,
        warnings=_warnings(sweep, fitting),
    )


def _models(sweep: MeasuredSweep) -> tuple[ConfigMeasurement, ...]:
    measured, profiles = sweep.measured, sweep.profiles
    models = []
    for index, (profile, timings) in enumerate(zip(sweep.trained, measured.timings, strict=True)):
        label = "smallest" if profile == profiles.smallest else f"random {index}"
        usage = measured.first_usages.get(index)
        seconds = [each for timing in timings for each in timing.epochs_s]
        first_s = statistics.median(timing.first_s for timing in timings)
        later = measured.later_timings(index) or timings
        models.append(
            ConfigMeasurement(
                label="largest" if profile == profiles.largest else label,
                config=profile.config,
                num_parameters=profile.num_parameters,
                checkpoint_bytes=max(timing.checkpoint_bytes for timing in timings),
                memory_bytes=usage.host_bytes + measured.final_usage.left_out_bytes
                if usage
                else None,
                gpu_memory_bytes=usage.gpu_bytes if usage else None,
                epoch_s=Range.of(seconds).times(measured.scale),
                trace_s=max(0.0, first_s - statistics.median(seconds)),
                start_s=statistics.median(timing.start_s for timing in later),
            )
        )
    return tuple(models)


def _assumptions(sweep: MeasuredSweep) -> tuple[str, ...]:
    measured, simulated, config = sweep.measured, sweep.simulated, sweep.plan.config
    tracing = "every trial is retraced"
    if sweep.profiles.shares:
        tracing = "the trials of a process share programs by structure"
    at_once = f"{measured.num_slots} at a time"
    if measured.num_slots < sweep.plan.max_concurrent_trials:
        num = sweep.plan.max_concurrent_trials
        at_once += f", where the sweep runs {num}, which may slow each other down"
    rows = ""
    if measured.scale > 1:
        usage = measured.final_usage
        rows = (
            f" The first {usage.num_rows:,} of {usage.total_rows:,} training rows were used; an "
            "iteration is assumed to grow with the rows."
        )
    assumptions = [
        f"Trained: {len(sweep.trained)} configs in fresh processes, {at_once}, with the "
        f"resources of a trial.{rows}",
        "Smallest and largest are corners of the space, found by changing one parameter at a "
        f"time; {len(sweep.profiles.random)} random models were built as well.",
        f"Every trial runs its {config.scheduler.max_t} iterations; {config.scheduler.name} may "
        "stop some of them earlier, which is not forecast.",
        f"Tracing: {tracing}.",
        _choice(config),
        "Trials neither fail nor stop by themselves, and nothing else runs on the machine.",
    ]
    if sweep.frozen_layers.num_bytes is not None and measured.scale > 1:
        assumptions.append(
            "The first trial of a node also computes the outputs of frozen layers for the rows "
            "that were not used here, which takes a few epochs of the whole model."
        )
    if simulated.growth > 1:
        assumptions.append(
            "Further trials are assumed to behave alike: "
            f"{config.budget.num_samples:,} for {len(simulated.traces[0].trials):,}."
        )
    return tuple(assumptions)


def _choice(config: SweepConfig) -> str:
    """Return which scheduler ``auto`` chooses, and why."""
    auto = AutoSettings(max_t=config.scheduler.max_t)
    in_processes = config.parallelism.in_processes
    chosen, reason = auto.choose(len(config.objectives), in_processes=in_processes)
    is_chosen = getattr(config.scheduler, "base", config.scheduler).name == chosen.name
    verb = "chooses" if is_chosen else "would choose"
    return f"Scheduler: `auto` {verb} {chosen.name}: {reason}."


def _warnings(sweep: MeasuredSweep, fitting: int) -> tuple[str, ...]:
    config, machine, memory = sweep.plan.config, sweep.machine, sweep.memory_bytes
    num_at_once = sweep.plan.max_concurrent_trials
    warnings = []
    if fitting < num_at_once and machine.num_nodes == 1:
        warnings.append(
            f"{num_at_once} concurrent trials need about "
            f"{num_at_once * memory.likely / 1e9:.1f} GB of memory, of which "
            f"{machine.available_bytes / 1e9:.1f} GB are free: set max_concurrent_trials to "
            f"{max(1, fitting)}, or trials will be killed and restarted"
        )
    rung_s = sweep.measured.process_s + sweep.costs.trace_s
    rung_s += sweep.first_rung * max(sweep.epoch_seconds)
    budget_s = config.budget.time_budget_s
    if budget_s is not None and budget_s < rung_s:
        warnings.append(
            f"budget.time_budget_s is {budget_s:g}, but the largest model takes {rung_s:.0f} "
            f"s to its first rung (iteration {sweep.first_rung}): trials may never be compared"
        )
    if machine.busy_cores > _BUSY * machine.num_cores:
        warnings.append(
            f"other programs used {machine.busy_cores:.1f} of {machine.num_cores} cores when "
            "this was measured: times are longer than on a quiet machine"
        )
    folder = config.sweeps_path.absolute()
    existing = next(each for each in (folder, *folder.parents) if each.exists())
    try:
        free = shutil.disk_usage(existing).free
    except OSError:  # a file system that does not know
        free = None
    if free is not None and free < sweep.folder_bytes.high:
        warnings.append(
            f"the sweep's folder may grow to {sweep.folder_bytes.high / 1e9:.1f} GB, but "
            f"{free / 1e9:.1f} GB are free in {config.sweeps_path}"
        )
    if broken := sweep.profiles.broken:
        warnings.append(
            f"{len(broken)} of {len(broken) + len(sweep.profiles.random)} random models could not "
            f"be built, their trials will fail: {broken[0]}"
        )
    return tuple(warnings)
