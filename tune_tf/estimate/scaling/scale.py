"""Scaling benchmark of a sweep's workload."""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import ray

from tune_tf.config import SweepConfig, import_workload
from tune_tf.errors import InvalidSettingsError
from tune_tf.estimate.extreme_configs import middle_config
from tune_tf.estimate.scaling.advice import Advice, advise
from tune_tf.estimate.scaling.benchmark_rounds import Effort, ProgressCallback, Rounds, Subject
from tune_tf.estimate.scaling.candidates import candidates
from tune_tf.estimate.scaling.measurement import Measurement
from tune_tf.estimate.scaling.table import how_measured
from tune_tf.sweep.cluster import cluster
from tune_tf.sweep.plan import checked_tracking_uri

QUICK = Effort(rounds=3, round_s=0.3, max_batches=50)
"""For a first look: a minute or two, and less certain."""


@dataclass(frozen=True)
class Scaling:
    """How a workload scales.

    Args:
        name: Of the sweep.
        workload: As the sweep file names it.
        config: The trial's values that were measured.
        measurements: The reference first: one replica on one device.
        advice: What they say.
        on_gpus: Whether devices are GPUs.
        num_devices: How many there are.
        effort: How long was measured.
        total_rows: Training rows that there are.
        started: When.
        profile: Files of TensorFlow's profile, content by path within a log folder.
    """

    name: str
    workload: str
    config: Mapping[str, Any]
    measurements: tuple[Measurement, ...]
    advice: Advice
    on_gpus: bool
    num_devices: int
    effort: Effort
    total_rows: int
    started: datetime
    profile: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def how(self) -> tuple[str, ...]:
        """What the numbers mean and how they were taken."""
        return how_measured(
            self.effort.rounds, used=self.measurements[0].num_rows, total=self.total_rows
        )

    @property
    def machine(self) -> str:
        """What it was measured on, in words."""
        kind = "GPU" if self.on_gpus else "CPU core"
        return f"{self.num_devices} {kind}{'' if self.num_devices == 1 else 's'}"

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "name": self.name,
            "workload": self.workload,
            "config": dict(self.config),
            "machine": {"num_devices": self.num_devices, "gpus": self.on_gpus},
            "rounds": self.effort.rounds,
            "total_rows": self.total_rows,
            "measurements": [each.to_dict() for each in self.measurements],
            "advice": list(self.advice.sentences),
            "settings": self.advice.settings,
        }


def scale_workload(
    config: SweepConfig,
    *,
    base_dir: Path | None = None,
    effort: Effort | None = None,
    quick: bool = False,
    max_devices: int | None = None,
    profile: bool = False,
    on_progress: ProgressCallback = lambda what, done: None,
) -> Scaling:
    """Measure how a sweep's workload scales over devices, batch sizes and amounts of data.

    It trains the config from the middle of the search space, without validation and callbacks,
    each candidate in processes of its own. Starts a Ray cluster on this machine, and ends it again,
    where none is connected.

    Args:
        config: The sweep's settings.
        base_dir: What the workload's path is relative to; the working directory by default.
        effort: How long to measure.
        quick: Whether to leave out what lies between the ends, and to measure shortly.
        max_devices: The most to try; all there are by default.
        profile: Whether to profile a few batches as well.
        on_progress: Called with a description of the current step and the share done, 0 to 1.

    Raises:
        WorkloadError: The workload cannot be imported, or one replica cannot train it.
        InvalidSettingsError: There are no devices to try.
        UnavailableResourcesError: The cluster has no room for a trial.
    """
    effort = effort or (QUICK if quick else Effort())
    if max_devices is not None and max_devices < 1:
        raise InvalidSettingsError([f"max_devices must be at least 1, not {max_devices}"])
    checked_tracking_uri(config)
    workload = import_workload(config.workload, base_dir or Path.cwd(), config.data)
    workload.check_data()
    values = middle_config(config.space)
    started = datetime.now(UTC).astimezone()
    with cluster(num_cpus=_oversubscribed_cpus()):
        on_gpus, there = _devices(config)
        most = min(there, max_devices or there)
        tried = candidates(
            config.parallelism,
            # Without GPUs a device is a core; more of them for one replica are tried as well.
            cpus_per_device=_cpus_per_device(config) if on_gpus else 1,
            max_devices=most,
            on_gpus=on_gpus,
            loop=config.loop,
            quick=quick,
        )
        rounds = Rounds(Subject(workload, values, config.loop, config.seed), effort, on_progress)
        measurements, files = rounds.measure(tried, profile=profile)
    return Scaling(
        name=config.name,
        workload=config.workload,
        config=values,
        measurements=tuple(measurements),
        advice=advise(measurements, on_gpus=on_gpus),
        on_gpus=on_gpus,
        num_devices=there,
        effort=effort,
        total_rows=rounds.total_rows,
        started=started,
        profile=files,
    )


def _num_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _oversubscribed_cpus() -> int:
    """Return CPUs for a cluster of our own: enough for all candidates, which take turns."""
    return 64 * _num_cores()


def _devices(config: SweepConfig) -> tuple[bool, int]:
    """Return whether devices are GPUs, and how many there are."""
    gpus = int(ray.cluster_resources().get("GPU", 0))
    wants_none = config.resources is not None and not config.resources.gpus
    if gpus and not wants_none:
        return True, gpus
    nodes = [node for node in ray.nodes() if node["Alive"]]
    if len(nodes) == 1:
        return False, _num_cores()
    return False, int(sum(node["Resources"].get("CPU", 0) for node in nodes))


def _cpus_per_device(config: SweepConfig) -> int:
    if config.resources is None:
        return 1
    return max(1, math.floor(config.resources.cpus / config.parallelism.num_replicas))
