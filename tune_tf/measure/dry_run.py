"""Dry run: a check of a sweep by one training batch in a process of its own."""

import itertools
import math
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence

from tune_tf.data.config_reads import MISSING, ConfigReads
from tune_tf.errors import (
    ErrorDetail,
    InvalidSettingsError,
    StoreUnavailableError,
    WorkloadError,
    did_you_mean,
)
from tune_tf.measure.child_process import ChildProcess
from tune_tf.measure.sample import sample_workload
from tune_tf.result_keys import training_metrics
from tune_tf.secrets import mask_secrets
from tune_tf.space.parameter import is_number
from tune_tf.space.paths import dotted, flatten
from tune_tf.sweep import SweepPlan
from tune_tf.sweep.cluster import cluster_address
from tune_tf.trainables import trainable
from tune_tf.workload import Config, Workload

_SERVER_TIMEOUT_S = 5.0


def dry_run_process(plan: SweepPlan) -> ChildProcess:
    """Return a process that trains one batch of a planned sweep; its result are warnings.

    It raises what :func:`check_sweep` raises; that MLflow's server does not respond, at once.
    """
    if plan.config.mlflow is not None:
        _check_server(plan.config.mlflow.tracking_uri)
    uses_gpus = plan.resources.gpus > 0
    return ChildProcess("a trial of one batch", _check, plan, uses_gpus=uses_gpus)


def check_sweep(plan: SweepPlan) -> list[str]:
    """Train one batch of a planned sweep, and ask its MLflow server; return warnings.

    Raises:
        InvalidSettingsError: A metric is not reported, a parameter is misspelt, or a GPU is not
            there.
        WorkloadError: The workload cannot train.
        StoreUnavailableError: MLflow's server does not respond.
    """
    with dry_run_process(plan) as process:
        warnings: list[str] = process.result()
    return warnings


def _check(plan: SweepPlan) -> list[str]:
    """Train one batch in this process; return warnings."""
    from tune_tf.training.callbacks import is_custom, supported_callbacks  # loads TensorFlow

    errors, warnings = _read_errors(plan.workload, plan.examples)
    sample, config, loop = sample_workload(plan.workload, 1), plan.examples[0], plan.config.loop
    callbacks = supported_callbacks(plan.workload.callbacks(dict(config)), loop)
    result = trainable(sample, loop=loop)(config=dict(config)).train()
    if not math.isfinite(result.get("loss", 0.0)):
        raise WorkloadError("its loss is not finite: look for NaN in the data")
    metrics = sorted(flatten(training_metrics(result)).items())
    metric_errors = _metric_errors(plan, [name for name, value in metrics if is_number(value)])
    # Callbacks of the user's, which do not run here, may add metrics to the logs.
    if custom := ", ".join(sorted({type(each).__name__ for each in callbacks if is_custom(each)})):
        warnings += [f"{each}; unless a callback ({custom}) adds it" for each in metric_errors]
    else:
        errors += metric_errors
    if errors := [*errors, *_gpu_errors(plan)]:
        raise InvalidSettingsError(errors)
    return warnings


def _check_server(uri: str) -> None:
    if not uri.startswith(("http://", "https://")):
        return
    try:
        urllib.request.urlopen(f"{uri.rstrip('/')}/health", timeout=_SERVER_TIMEOUT_S).close()  # noqa: S310
    except urllib.error.HTTPError:
        pass  # it responds
    except (OSError, ValueError) as error:
        raise StoreUnavailableError(
            f"mlflow.tracking_uri: {mask_secrets(uri)} does not respond ({error}): start the "
            "server, correct the address, or write `mlflow: null` for no tracking"
        ) from None


def _read_as_a_trial(workload: Workload, config: Config) -> None:
    """Call the methods of a workload that a trial calls with its config."""
    from tune_tf.training.input.dataset_stream import brings_batches  # late: it loads TensorFlow

    data = workload.load_data(config)
    workload.build_model(config)
    workload.callbacks(config)
    workload.shuffle(config)
    if not brings_batches(data):
        workload.global_batch_size(config)
    workload.structure(config)
    for training in (True, False):
        workload.per_example(config, training=training)


def _metric_errors(plan: SweepPlan, metrics: Sequence[str]) -> Iterator[ErrorDetail]:
    wanted = [("objective", each.metric) for each in plan.config.objectives]
    wanted += [(f"constraints.{each.metric}", each.metric) for each in plan.config.constraints]
    for where, metric in wanted:
        if metric in metrics:
            continue
        near = did_you_mean(metric, metrics)
        text = f"there is no metric {metric!r}{near}; the model reports {', '.join(metrics)}"
        if metric.startswith("val_") and "val_loss" not in metrics:
            text += "; load_data returns no validation rows"
        yield ErrorDetail(where, text)


def _gpu_errors(plan: SweepPlan) -> Iterator[ErrorDetail]:
    import tensorflow as tf

    cpus, gpus = plan.resources.cpus, plan.resources.gpus
    num_gpus = len(tf.config.list_physical_devices("GPU"))
    if gpus > num_gpus and cluster_address(plan.config.cluster) is None:
        text = (
            f"is {gpus:g}, but this machine has {num_gpus}: write `resources: {{cpus: {cpus}, "
            f"gpus: {num_gpus}}}`, or connect to a Ray cluster with cluster.address"
        )
        yield ErrorDetail("resources.gpus", text)


def _read_errors(
    workload: Workload, configs: Sequence[Config]
) -> tuple[list[ErrorDetail], list[str]]:
    """Return errors of misspelt parameters, and warnings of others that nothing reads."""
    errors, warnings = [], []
    read: set[str] = set()
    missing: set[str] = set()
    for config in configs:
        reads = ConfigReads(config)
        _read_as_a_trial(workload, reads.recording)
        for path, digest in reads.digests.items():
            (missing if digest == MISSING else read).add(".".join(map(str, path)))
    for name in sorted({dotted(path) for config in configs for path in flatten(config)}):
        if read.intersection(itertools.accumulate(name.split("."), "{}.{}".format)):
            continue  # by itself, or with a group
        if near := did_you_mean(name, missing):
            text = f"nothing reads it{near} That is what the workload asks for, without success"
            errors.append(ErrorDetail(f"space.{name}", text))
        else:
            num = len(configs)
            warnings.append(f"space.{name}: the workload read it in none of {num} configs")
    return errors, warnings
