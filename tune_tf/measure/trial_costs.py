"""Epochs of one trial in a process of its own: their time and memory."""

import contextlib
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import ray

from tune_tf.config import ClusterSettings
from tune_tf.measure.child_process import ChildProcess
from tune_tf.result_keys import PEAK_MEMORY, ROWS_PER_S
from tune_tf.sweep import SweepPlan
from tune_tf.sweep.cluster import cluster
from tune_tf.sweep.runner import sweep_trainable
from tune_tf.workload import Config

_MEASURED_S = 2.0


@dataclass(frozen=True)
class TrialCosts:
    """Time and memory of epochs of a trial, validation included.

    Args:
        start_s: Seconds from the start of the process to the end of its first epoch.
        epoch_s: Seconds of the median epoch after the first.
        rows_per_s: Training rows per second of the fastest epoch; None if unknown.
        memory_bytes: Peak host memory of the trial's processes; None if unknown.
        gpu_memory_bytes: Peak GPU memory of a trial in one process; None without GPUs.
        checkpoint_bytes: Bytes of a checkpoint.
    """

    start_s: float
    epoch_s: float
    rows_per_s: float | None
    memory_bytes: float | None
    gpu_memory_bytes: int | None
    checkpoint_bytes: int


def costs_process(what: str, plan: SweepPlan, config: Config) -> ChildProcess:
    """Return a process that trains a trial of a sweep for two epochs, and more if these are short.

    Its result are :class:`TrialCosts`. Workers of a trial start on the Ray cluster that is
    connected here.
    """
    address = ray.get_runtime_context().gcs_address
    uses_gpus = plan.resources.gpus > 0
    return ChildProcess(what, _train, plan, dict(config), address, uses_gpus=uses_gpus)


def _train(plan: SweepPlan, config: Config, address: str) -> TrialCosts:
    """Train a trial in this process."""
    with contextlib.ExitStack() as stack:
        in_processes = plan.config.parallelism.in_processes
        if in_processes:
            stack.enter_context(cluster(ClusterSettings(address=address)))
        trial = sweep_trainable(plan.config, plan, None)(config=dict(config))
        stack.callback(trial.stop)
        trial.train()
        start_s = time.time() - psutil.Process().create_time()
        results = [trial.train()]
        while sum(each["time_this_iter_s"] for each in results) < _MEASURED_S:
            results.append(trial.train())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        trial.save_checkpoint(str(folder))
        rates = [each[ROWS_PER_S] for each in results if ROWS_PER_S in each]
        return TrialCosts(
            start_s,
            statistics.median(each["time_this_iter_s"] for each in results),
            max(rates, default=None),  # others were slowed down by something else
            results[-1].get(PEAK_MEMORY),
            None if in_processes else _peak_gpu_bytes(),
            sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()),
        )


def _peak_gpu_bytes() -> int | None:
    """Return the peak memory of this process on its GPUs; None without them."""
    import tensorflow as tf

    gpus = [
        device.name.removeprefix("/device:") for device in tf.config.list_logical_devices("GPU")
    ]
    return sum(tf.config.experimental.get_memory_info(gpu)["peak"] for gpu in gpus) or None
