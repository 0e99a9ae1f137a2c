"""Scaling of a workload: the same epoch on more devices and in other batches."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import ray

from tune_tf.config import SweepConfig
from tune_tf.errors import WorkloadError
from tune_tf.measure.extreme_configs import fill_with_middle
from tune_tf.measure.sample import sample_workload
from tune_tf.measure.trial_costs import TrialCosts, costs_process
from tune_tf.parallelism import Mirrored, Parallelism
from tune_tf.resources import TrialResources
from tune_tf.space.paths import nest
from tune_tf.sweep import SweepPlan, plan_sweep
from tune_tf.sweep.cluster import cluster

_MAX_BATCHES = 50  # of an epoch
_EFFICIENCY = 0.7  # from which more devices are advised


@dataclass(frozen=True)
class ScalingCandidate:
    """What is measured: a parallelism with its resources, and batches of another size."""

    what: str
    parallelism: Parallelism
    resources: TrialResources
    batch_factor: float = 1.0


@dataclass(frozen=True)
class ScalingRow:
    """Speed of one candidate.

    Args:
        devices: Number of GPUs, or of CPU cores without GPUs.
        speed_up: Training rows per second over those of one replica on one device.
        efficiency: Speed-up over the number of devices.
        memory_bytes: Peak host memory of its processes; None if unknown.
    """

    what: str
    devices: int
    batch_size: int
    rows_per_s: float
    speed_up: float
    efficiency: float
    memory_bytes: float | None


@dataclass(frozen=True)
class Scaling:
    """How the trial of a config scales.

    Args:
        device: ``GPU`` or ``core``.
        rows: What was measured; the first is one replica on one device.
        failures: Why a candidate could not be measured, by what it is.
        advice: What to choose, with the numbers.
    """

    config: Mapping[str, Any]
    device: str
    rows: tuple[ScalingRow, ...]
    failures: Mapping[str, str]
    advice: str


def scale_workload(
    config: SweepConfig,
    *,
    base_dir: Path | None = None,
    max_devices: int | None = None,
) -> Scaling:
    """Measure how a sweep's workload scales over devices and batch sizes.

    The middle config of the space trains on at most 50 batches, in a process for each row of the
    table, one after another. Without a connected Ray cluster, one is started on this machine and
    stopped afterwards. The workload's path is relative to ``base_dir``, by default the working
    directory; ``max_devices`` are at most used, all by default.

    Raises:
        WorkloadError: The workload cannot be imported, or one replica cannot train it.
        InvalidSettingsError: The settings are invalid.
    """
    base_dir = base_dir or Path.cwd()
    trial_config = nest(fill_with_middle(config.space, {}))
    rows: list[ScalingRow] = []
    failures: dict[str, str] = {}
    with cluster(config.cluster, base_dir):
        plan = plan_sweep(config, base_dir=base_dir)
        on_gpus = plan.resources.gpus > 0
        num_devices = _devices_of_a_node("GPU" if on_gpus else "CPU")
        num_devices = min(num_devices, max_devices or num_devices)
        for each in candidates(config.parallelism, plan.resources, num_devices, on_gpus=on_gpus):
            try:
                rows.append(_measure(each, plan, trial_config, rows[0] if rows else None))
            except WorkloadError as error:
                if not rows:
                    raise
                failures[each.what] = str(error)
    device = "GPU" if on_gpus else "core"
    return Scaling(trial_config, device, tuple(rows), failures, advice(rows, device))


def _devices_of_a_node(kind: str) -> int:
    """Return the devices of the live node that has the most."""
    nodes = (node["Resources"] for node in ray.nodes() if node["Alive"])
    return int(max(node.get(kind, 0) for node in nodes))


def candidates(
    declared: Parallelism, resources: TrialResources, max_devices: int, *, on_gpus: bool
) -> list[ScalingCandidate]:
    """Return what to measure; the first is one replica on one device.

    On 2, 4, 8, ... devices, these are replicas, without GPUs also one replica on more cores; then
    the ``declared`` kind, if it is another, with its own ``resources``.
    """
    cpus = max(1, resources.cpus // declared.num_devices) if on_gpus else 1
    shared = {field.name for field in fields(Mirrored)} - {"num_replicas"}
    one = Mirrored(**{name: getattr(declared, name) for name in shared})

    def of(what: str, num: int, num_replicas: int) -> ScalingCandidate:
        share = replace(resources, cpus=num * cpus, gpus=num if on_gpus else 0)
        return ScalingCandidate(what, replace(one, num_replicas=num_replicas), share)

    reference = of("1 replica", 1, 1)
    found = [reference]
    numbers = {2**power for power in range(max_devices.bit_length())} | {max_devices}
    for num in sorted(numbers - {1}):
        found += [] if on_gpus else [of(f"1 replica, {num} cores", num, 1)]
        found.append(of(f"{num} replicas", num, num))
    if not isinstance(declared, Mirrored):
        what = f"{declared.kind.replace('_', ' ')}: {declared.label}"
        found.append(ScalingCandidate(what, declared, resources))
    for factor in (0.5, 2.0, 4.0):
        found.append(replace(reference, what=f"batch x {factor:g}", batch_factor=factor))
    return found


def _measure(
    candidate: ScalingCandidate,
    plan: SweepPlan,
    config: dict[str, Any],
    reference: ScalingRow | None,
) -> ScalingRow:
    """Train a candidate; without a reference it is that one."""
    num_devices = int(candidate.resources.gpus) or candidate.resources.cpus
    plan = replace(
        plan,
        config=plan.config.model_copy(update={"parallelism": candidate.parallelism}),
        workload=sample_workload(plan.workload, _MAX_BATCHES, candidate.batch_factor),
        resources=candidate.resources,
    )
    with costs_process(candidate.what, plan, config) as process:
        costs: TrialCosts = process.result()
    if costs.rows_per_s is None:
        raise WorkloadError(
            "scaling is measured on data whose rows are known: return arrays from load_data"
        )
    speed_up = costs.rows_per_s / (reference.rows_per_s if reference else costs.rows_per_s)
    return ScalingRow(
        candidate.what,
        num_devices,
        plan.workload.global_batch_size(config),
        costs.rows_per_s,
        speed_up,
        speed_up / num_devices,
        costs.memory_bytes,
    )


def advice(rows: Sequence[ScalingRow], device: str) -> str:
    """Return what to choose, in one line."""
    paying = [each for each in rows if each.devices > 1 and each.efficiency >= _EFFICIENCY]
    best = max(paying, key=lambda each: each.speed_up, default=None)
    if best is None:
        return f"Give a trial one {device}, and run as many at once as there are {device}s."
    return (
        f"Give a trial {best.what}: {best.speed_up:.2f} times the rows a second of one {device}, "
        f"{best.efficiency:.0%} of {best.devices} single ones."
    )
