"""Scaling benchmark of a sweep's workload."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import ray

from tune_tf.config import SweepConfig, import_workload
from tune_tf.errors import InvalidSettingsError
from tune_tf.estimate.extreme_configs import fill_with_middle
from tune_tf.estimate.sample_process import ProgressCallback
from tune_tf.estimate.scaling.advice import Advice, advise
from tune_tf.estimate.scaling.benchmark_rounds import Effort, ScalingBenchmark
from tune_tf.estimate.scaling.candidates import Measurement, candidates
from tune_tf.formatting import counted
from tune_tf.resources import TrialResources
from tune_tf.space.paths import nest
from tune_tf.sweep.cluster import cluster
from tune_tf.sweep.plan import checked_tracking_uri

_QUICK = Effort(rounds=3, round_s=0.3, max_batches=50)


@dataclass(frozen=True)
class Scaling:
    """Scaling of a workload over devices, batch sizes and amounts of data.

    The first measurement is the reference: one replica on one device. ``profile`` are the files of
    the TensorFlow profile, content by path within a log folder.
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
    profile: Mapping[str, bytes]

    @property
    def how(self) -> tuple[str, ...]:
        """Explanation of the numbers, in sentences."""
        return how_measured(
            self.effort.rounds, used=self.measurements[0].num_rows, total=self.total_rows
        )

    @property
    def machine(self) -> str:
        """Description of the devices, such as ``4 GPUs``."""
        return counted(self.num_devices, "GPU" if self.on_gpus else "CPU core")

    def to_dict(self) -> dict[str, Any]:
        """Convert to plain data."""
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
    on_progress: ProgressCallback = lambda step, share: None,
) -> Scaling:
    """Measure how a sweep's workload scales over devices, batch sizes and amounts of data.

    Each candidate trains the middle config of the search space in separate processes, without
    validation and callbacks. Without a connected Ray cluster, one is started on this machine and
    stopped afterwards.

    Args:
        config: The sweep's settings.
        base_dir: Folder that the workload's path is relative to; the working directory by default.
        effort: Length of the benchmark.
        quick: Whether to skip candidates between the extremes, and to shorten the benchmark.
        max_devices: Most devices to try; all by default.
        profile: Whether to also profile a few batches.
        on_progress: Receives the steps of the measurement.

    Raises:
        WorkloadError: The workload cannot be imported, or one replica cannot train it.
        InvalidSettingsError: ``max_devices`` or the tracking settings are invalid.
        UnavailableResourcesError: The cluster lacks the resources for a trial.
    """
    effort = effort or (_QUICK if quick else Effort())
    if max_devices is not None and max_devices < 1:
        raise InvalidSettingsError([f"max_devices must be at least 1, not {max_devices}"])
    checked_tracking_uri(config)
    workload = import_workload(config.workload, base_dir or Path.cwd(), config.data)
    workload.check_data()
    middle_config = nest(fill_with_middle(config.space, {}))
    started = datetime.now(UTC).astimezone()
    # A new cluster has CPUs for all candidates at once, because they take turns.
    with cluster(num_cpus=64 * _num_cores()):
        on_gpus, num_devices = _devices(config)
        benchmark = ScalingBenchmark(
            workload, middle_config, config.loop, config.seed, effort, on_progress
        )
        measurements, files = benchmark.measure(
            candidates(
                config.parallelism,
                # Without GPUs a device is a core, and a replica on several is also a candidate.
                cpus_per_device=_cpus_per_device(config) if on_gpus else 1,
                max_devices=min(num_devices, max_devices or num_devices),
                on_gpus=on_gpus,
                loop=config.loop,
                quick=quick,
                declared=config.resources or TrialResources(),
            ),
            profile=profile,
        )
    return Scaling(
        name=config.name,
        workload=config.workload,
        config=middle_config,
        measurements=tuple(measurements),
        advice=advise(measurements, on_gpus=on_gpus),
        on_gpus=on_gpus,
        num_devices=num_devices,
        effort=effort,
        total_rows=benchmark.total_rows,
        started=started,
        profile=files,
    )


def _num_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _devices(config: SweepConfig) -> tuple[bool, int]:
    """Return whether devices are GPUs, and their number."""
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
    return max(1, config.resources.cpus // config.parallelism.num_replicas)


def how_measured(rounds: int, *, used: int, total: int) -> tuple[str, ...]:
    """Return sentences that explain numbers from the first ``used`` of ``total`` training rows."""
    sample = f" Here, all data are the first {used:,} of {total:,} rows." if used < total else ""
    return (
        f"Each line was trained in separate processes, warmed up, and then measured {rounds} "
        "times in turn with the others. rows/s is the median: training rows a second, without "
        f"validation.{sample}",
        "speed-up compares with one replica on one device in the same round; the number after it "
        "is how far the rounds deviate from it. efficiency is the speed-up divided by the "
        "devices used.",
        "cores busy is CPU time a second. memory is the most that the processes on this machine "
        "used, about 0.6 GB of each for TensorFlow itself. start is from a fresh process to the "
        "end of the first epoch.",
        "input is the share of time that preparing rows takes. The data are on the devices, so "
        "nothing waits for a pipeline: the same loop was run again without the model, which "
        "shows what selecting rows and per_example take of an epoch, at most. For several "
        "replicas it was measured on the share of one.",
    )
